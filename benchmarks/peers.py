"""The same model, the same prompt, one machine: Foredraft against llama.cpp and onnxruntime-genai, interleaved.

    python benchmarks/peers.py bundles/smollm2-135m.foredraft [--threads 1] [--tokens 128] [--rounds 5]
                               [--genai FOLDER] [--gguf FILE ...]

llama.cpp reads the GGUF that the bundle was exported from (and further ones given with --gguf, such as a Q4_0);
onnxruntime-genai a folder made by its own model builder (int4). Decoding only, greedy, plain: no drafts anywhere.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from foredraft import Bundle, Session

PROMPT = "Explain step by step how photosynthesis works, and why it matters for life on Earth."
Decode = Callable[[int], float]
"""``decode(tokens)`` -> seconds for that many decoding steps after the prompt."""


def foredraft(path: Path, threads: int, prompt: list[int]) -> Decode:
    session = Session(Bundle.open(path), "none", threads=threads, context=1024)
    session.bundle.manifest.tokenizer.eos_ids  # noqa: B018 (read once, so that opening is not timed)

    def decode(tokens: int) -> float:
        result = session.generate(prompt, max_tokens=tokens + 1)
        return result.stats.seconds_decode / max(result.stats.rounds, 1) * tokens

    return decode


def llama_cpp(path: Path, threads: int, prompt: list[int]) -> Decode:
    from llama_cpp import Llama

    model = Llama(str(path), n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False)

    def decode(tokens: int) -> float:
        model.reset()
        model.eval(prompt)
        token, start = model.sample(temp=0.0), time.perf_counter()
        for _ in range(tokens):
            model.eval([token])
            token = model.sample(temp=0.0)
        return time.perf_counter() - start

    return decode


def genai(folder: Path, threads: int, prompt: list[int]) -> Decode:
    import onnxruntime_genai as og

    config = og.Config(str(folder))
    config.clear_providers()
    options = {"intra_op_num_threads": threads, "inter_op_num_threads": 1}
    config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
    model = og.Model(config)

    def decode(tokens: int) -> float:
        parameters = og.GeneratorParams(model)
        parameters.set_search_options(max_length=len(prompt) + tokens + 2, min_length=len(prompt) + tokens + 1)
        generator = og.Generator(model, parameters)
        generator.append_tokens([prompt])
        generator.generate_next_token()
        start = time.perf_counter()
        for _ in range(tokens):
            generator.generate_next_token()
        return time.perf_counter() - start

    return decode


def gguf_of_smollm2() -> Path:
    from foredraft_exporter.sources.catalog import smollm2_gguf

    return smollm2_gguf()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gguf", type=Path, action="append", default=[], help="a further file for llama.cpp")
    parser.add_argument("--genai", type=Path, help="an onnxruntime-genai model folder")
    arguments = parser.parse_args()
    prompt = Bundle.open(arguments.bundle).tokenizer.encode(PROMPT)
    peers = {"Foredraft": foredraft(arguments.bundle, arguments.threads, prompt)}
    for path in (gguf_of_smollm2(), *arguments.gguf):
        peers[f"llama.cpp {path.stem.rpartition('.')[2]}"] = llama_cpp(path, arguments.threads, prompt)
    if arguments.genai:
        peers["onnxruntime-genai"] = genai(arguments.genai, arguments.threads, prompt)
    times: dict[str, list[float]] = {name: [] for name in peers}
    for turn in range(arguments.rounds + 1):
        for name, decode in peers.items():
            seconds = decode(arguments.tokens)
            if turn:  # the first turn warms up
                times[name].append(seconds)
    table = Table(
        title=f"Plain decoding, {arguments.threads} thread(s), {arguments.tokens} tokens", title_justify="left"
    )
    for column in ("engine", "tokens/s", "Foredraft is faster by"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    own = median(times["Foredraft"])
    for name, seconds in times.items():
        table.add_row(name, f"{arguments.tokens / median(seconds):.1f}", f"{median(seconds) / own:.2f}")
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
