"""Exactness on real questions: every drafter, greedy and sampled, writes the tokens of plain decoding.

    python benchmarks/exact.py bundles/smollm2-135m.foredraft [--questions FILE] [--per-category K] [--max-tokens N]

Exits with 1 and names the answers if any differs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.progress import Progress

from foredraft import Bundle, SamplingParams, Session
from foredraft.bench.questions import read_questions
from foredraft.drafters import names
from foredraft.engines.onnxruntime import OnnxRuntimeEngine

SAMPLINGS = (
    SamplingParams(),
    SamplingParams(temperature=0.5, top_p=0.9, seed=1),
    SamplingParams(temperature=1.0, top_p=0.95, seed=2),
    SamplingParams(temperature=1.5, top_p=0.8, seed=3),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--questions", type=Path, default=Path("tests/data/spec_bench_dev.jsonl"))
    parser.add_argument("--per-category", type=int, help="only the first so many of each category")
    parser.add_argument("--max-tokens", type=int, default=128)
    arguments = parser.parse_args()
    bundle = Bundle.open(arguments.bundle)
    engine = OnnxRuntimeEngine(bundle)
    sessions = {name: Session(bundle, name, engine=engine) for name in names()}
    questions = read_questions(arguments.questions, arguments.per_category)
    wrong, checked = [], 0
    with Progress() as progress:
        task = progress.add_task("writing", total=len(questions) * len(SAMPLINGS))
        for question in questions:
            messages = [{"role": "user", "content": question.prompt}]
            for sampling in SAMPLINGS:
                answers = {
                    name: session.generate(messages=messages, max_tokens=arguments.max_tokens, sampling=sampling)
                    for name, session in sessions.items()
                }
                plain = answers.pop("none")
                wrong += [(n, question.id, sampling) for n, a in answers.items() if a.tokens != plain.tokens]
                checked += len(answers)
                progress.advance(task)
    for name, question_id, sampling in wrong:
        print(f"DIFFERENT: {name} on question {question_id} with {sampling}")
    print(f"{checked - len(wrong)} of {checked} drafted answers have the tokens of plain decoding")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
