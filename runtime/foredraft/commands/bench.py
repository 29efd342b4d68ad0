"""``foredraft bench``: how much each drafter gains on your questions, and proof that no token changed."""

from __future__ import annotations

import json
from pathlib import Path

import click

EXAMPLES = """
Examples:

\b
  foredraft bench smollm2-135m.foredraft --questions prompts.jsonl --drafters none,context
  foredraft bench BUNDLE --questions spec_bench.jsonl --per-category 4 --threads 1 --repeats 3
  foredraft bench BUNDLE --questions prompts.jsonl --temperature 1.0 --seed 7 --json out.json
"""


@click.command(short_help="Compare drafters on a file of questions.", epilog=EXAMPLES)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--questions", required=True, type=click.Path(path_type=Path), help="JSONL with 'prompt' or 'turns'.")
@click.option("--drafters", default="none,prompt-lookup,context", show_default=True, help="Comma-separated names.")
@click.option("--max-tokens", default=128, show_default=True, type=click.IntRange(1), help="Longest answer.")
@click.option("--per-category", type=click.IntRange(1), help="Only the first so many questions of each category.")
@click.option("--policy", default="auto", show_default=True, help="auto, fixed:N (N nodes), or a scheme's name.")
@click.option("--temperature", default=0.0, show_default=True, type=float, help="0 is greedy.")
@click.option("--top-p", default=1.0, show_default=True, type=float)
@click.option("--seed", default=0, show_default=True, type=int)
@click.option("--threads", type=click.IntRange(1), help="Threads of the engine [default: all cores].")
@click.option("--lowering", default="auto", show_default=True, type=click.Choice(["auto", "kernels", "portable"]))
@click.option("--repeats", default=1, show_default=True, type=click.IntRange(1), help="Timings are their medians.")
@click.option("--raw", is_flag=True, help="Give the prompts as they are, without the chat template.")
@click.option("--show-text", is_flag=True, help="Print each answer as it is finished.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here ('-': print them).")
def bench(
    bundle: Path,
    questions: Path,
    drafters: str,
    max_tokens: int,
    per_category: int | None,
    policy: str,
    temperature: float,
    top_p: float,
    seed: int,
    threads: int | None,
    lowering: str,
    repeats: int,
    raw: bool,
    show_text: bool,
    json_path: Path | None,
) -> None:
    """Write the same answers with several drafters, question by question, and compare speed and tokens.

    Exits with 1 if any answer differs from plain decoding's. Speeds are decoding only; the prompt's own forward is
    left out, for all drafters alike.
    """
    from rich.progress import Progress

    from foredraft import Bundle, SamplingParams, Session
    from foredraft.bench.compare import check_drafters, compare
    from foredraft.bench.questions import read_questions
    from foredraft.bench.table import console, render
    from foredraft.drafters import names
    from foredraft.engines.onnxruntime import OnnxRuntimeEngine

    chosen = [name.strip() for name in drafters.split(",") if name.strip()]
    check_drafters(chosen, names())
    asked = read_questions(questions, per_category)
    sampling = SamplingParams(temperature=temperature, top_p=top_p, seed=seed)
    opened = Bundle.open(bundle)
    engine = OnnxRuntimeEngine(opened, threads, lowering)
    screen = console(stderr=json_path == Path("-"))
    title = f"{opened.manifest.model.name}, {engine.name}, {engine.threads} threads, {len(asked)} questions"
    with Progress(console=screen, transient=True) as progress:
        task = progress.add_task("writing", total=len(asked))
        for comparison in compare(
            opened,
            engine,
            asked,
            chosen,
            max_tokens=max_tokens,
            sampling=sampling,
            repeats=repeats,
            chat=not raw,
            open_session=lambda name: Session(opened, name, engine=engine, policy=policy),
        ):
            progress.advance(task)
            if show_text:
                run = comparison.runs["none"][-1]
                progress.console.print(f"\n[bold]{run.question.prompt}[/bold]\n{run.result.text}", markup=True)
    screen.print(render(comparison, title))
    if json_path == Path("-"):
        click.echo(json.dumps(comparison.to_json()))
    elif json_path:
        json_path.write_text(json.dumps(comparison.to_json(), indent=1) + "\n", encoding="utf-8")
    if comparison.unequal:
        raise SystemExit(1)
