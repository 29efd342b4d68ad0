"""The page at ``/``: one HTML file without external assets, under a policy that allows nothing but itself."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib.resources import files

HTML = files("foredraft.server").joinpath("page.html").read_text(encoding="utf-8")


def _hashes(tag: str) -> str:
    """CSP sources of the inline elements of one kind."""
    bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", HTML, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in bodies]
    return " ".join(f"'sha256-{digest}'" for digest in digests)


HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; script-src {_hashes('script')}; style-src {_hashes('style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
