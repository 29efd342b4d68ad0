"""Chat templates come from strangers: they can neither leave the sandbox nor run on for ever."""

from __future__ import annotations

from pathlib import Path

import pytest

from foredraft.bundle import Bundle
from foredraft.errors import ForedraftError
from tests.runtime.distribution.made import edit_manifest, listing

MESSAGES = [{"role": "user", "content": "hi"}]


def _render(bundle: Path, template: str) -> str:
    (bundle / "chat_template.jinja").write_text(template)
    edit_manifest(bundle, files={n: {"size": i.size, "sha256": i.sha256} for n, i in listing(bundle).items()})
    made = Bundle.open(bundle).chat_template
    assert made is not None
    return made.render(MESSAGES)


def test_a_sound_one(bundle: Path) -> None:
    assert _render(bundle, "{% for m in messages %}{{ m['content'] }}{% endfor %}") == "hi"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ cycler.__init__.__globals__ }}", "unsafe|undefined"),
        ("{{ self.__init__.__globals__.os.system('true') }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe|not safely"),
        ("{{ '{0.__class__.__mro__}'.format(1) }}", "unsafe"),
        ("{% include '/etc/passwd' %}", "include|loader|not allowed"),
        ("{% import 'os' as os %}", "import|loader|not allowed"),
        ("{{ raise_exception('no') }}", "no"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "is too large"),
        ("{{ 'x' * 10 ** 10 }}", "more than 4194304 elements"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested|steps|recursion"),
        ("{{ messages[0]", "unexpected end|end of template"),
    ],
)
def test_refusals(bundle: Path, template: str, message: str) -> None:
    with pytest.raises(ForedraftError, match=message) as caught:
        _render(bundle, template)
    assert "\n" not in str(caught.value)
