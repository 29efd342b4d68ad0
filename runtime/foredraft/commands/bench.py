"""``foredraft bench``: how much each drafter gains on your questions, and proof that no token changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from foredraft.bench.comparison import Comparison
    from foredraft.bundle import Bundle
    from foredraft.engines.base import Engine
    from foredraft.session import Session

TRACED = 6
"""Categories whose first question's texts the report shows."""
EXAMPLES = """
Examples:

\b
  foredraft bench smollm2-135m.foredraft --questions prompts.jsonl --drafters none,suffix,blend
  foredraft bench BUNDLE --questions spec_bench.jsonl --per-category 4 --threads 1 --repeats 3
  foredraft bench BUNDLE --questions prompts.jsonl --temperature 1.0 --seed 7 --json out.json
  foredraft bench BUNDLE --questions prompts.jsonl --report out.html
"""


@click.command(short_help="Compare drafters on a file of questions.", epilog=EXAMPLES)
@click.argument("bundle", type=click.Path(path_type=Path))
@click.option("--questions", required=True, type=click.Path(path_type=Path), help="JSONL with 'prompt' or 'turns'.")
@click.option(
    "--drafters", default="none,prompt-lookup,context,blend", show_default=True, help="Comma-separated names."
)
@click.option("--db", "databases", type=click.Path(path_type=Path), multiple=True, metavar="FILE", help="A database.")
@click.option("--levels", metavar="NAMES", help="Levels that blend drafts from: context,model,corpus,recycled.")
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
@click.option("--report", type=click.Path(path_type=Path), metavar="OUT.html", help="Write a page of plots and texts.")
def bench(
    bundle: Path,
    questions: Path,
    drafters: str,
    databases: tuple[Path, ...],
    levels: str | None,
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
    report: Path | None,
) -> None:
    """Write the same answers with several drafters, question by question, and compare speed and tokens.

    Exits with 1 if any answer differs from plain decoding's. Speeds are decoding only; the prompt's own forward is
    left out, for all drafters alike. Ctrl-C ends it early, with the figures of the questions finished so far.
    """
    from foredraft import Bundle, SamplingParams
    from foredraft.bench.compare import check_drafters, compare
    from foredraft.bench.questions import read_questions
    from foredraft.bench.table import console, render
    from foredraft.drafters import names
    from foredraft.engines.onnxruntime import OnnxRuntimeEngine

    chosen = [name.strip() for name in drafters.split(",") if name.strip()]
    check_drafters(chosen, names())
    _check_folders(json_path, report)
    asked = read_questions(questions, per_category)
    sampling = SamplingParams(temperature=temperature, top_p=top_p, seed=seed)
    opened = Bundle.open(bundle)
    engine = OnnxRuntimeEngine(opened, threads, lowering)
    growing = compare(
        opened,
        engine,
        asked,
        chosen,
        max_tokens=max_tokens,
        sampling=sampling,
        repeats=repeats,
        chat=not raw,
        open_session=_opener(opened, engine, policy, databases, levels),
        traced=TRACED if report else 0,
    )
    screen = console(stderr=json_path == Path("-"))
    comparison, interrupted = _finish(growing, screen, _print_answer(screen) if show_text else None)
    title = f"{opened.manifest.model.name}, {engine.name}, {engine.threads} threads"
    screen.print(render(comparison, f"{title}, {len(comparison.finished)} of {len(asked)} questions"))
    settings = f"at most {max_tokens} tokens, temperature {temperature:g}, policy {policy}, repeats {repeats}"
    _write(comparison, _about(opened, engine, settings), json_path, report)
    if interrupted:
        click.echo(f"interrupted after {len(comparison.finished)} of {len(asked)} questions", err=True)
        raise SystemExit(130)
    if comparison.unequal:
        raise SystemExit(1)


def _check_folders(*paths: Path | None) -> None:
    """Found out before the work rather than after it."""
    from foredraft.errors import RequestError

    for path in paths:
        if path and not path.parent.is_dir():
            raise RequestError(f"{path}: its folder does not exist")


def _opener(
    bundle: Bundle, engine: Engine, policy: str, databases: Sequence[Path], levels: str | None
) -> Callable[[str], Session]:
    """Opens the session of a drafter by name. Plain decoding is plain: no exit drafts for it, whatever the policy."""
    from foredraft import Session
    from foredraft.bench.comparison import BASELINE

    def open_session(name: str) -> Session:
        if name == BASELINE:
            return Session(bundle, name, engine=engine, policy="fixed:0")
        own = levels if name == "blend" else None
        return Session(bundle, name, engine=engine, policy=policy, databases=databases, levels=own)

    return open_session


def _about(bundle: Bundle, engine: Engine, settings: str) -> dict[str, str]:
    from foredraft.bench.about import circumstances

    return {
        "model": f"{bundle.manifest.model.name}, {bundle.manifest.precision}",
        "engine": f"{engine.name}, {engine.threads} threads",
        "settings": settings,
        **circumstances(),
    }


def _finish(
    growing: Iterator[Comparison], screen: Console, show: Callable[[Comparison], None] | None
) -> tuple[Comparison, bool]:
    """Run to the end or to Ctrl-C; returns what is there then, and whether it was Ctrl-C."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    comparison = next(growing)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True) as progress:
        task = progress.add_task("questions", total=comparison.asked)
        try:
            for _ in growing:
                progress.update(task, completed=len(comparison.finished))
                if show:
                    show(comparison)
        except KeyboardInterrupt:
            return comparison, True
    return comparison, False


def _print_answer(screen: Console) -> Callable[[Comparison], None]:
    def show(comparison: Comparison) -> None:
        run = comparison.finished[-1][comparison.drafters[0]]
        screen.print(f"\n{run.question.prompt}", style="bold", markup=False)
        screen.print(run.result.text, markup=False)

    return show


def _write(comparison: Comparison, about: dict[str, str], json_path: Path | None, report: Path | None) -> None:
    figures = {"about": about, **comparison.to_json()}
    if json_path == Path("-"):
        click.echo(json.dumps(figures))
    elif json_path:
        json_path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if report:
        from foredraft.bench.report import write_report

        write_report(report, comparison, about)
        click.echo(f"wrote {report}", err=True)
