"""``foredraft bench``: how much each drafter or policy gains on your questions, and proof that no token changed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from foredraft.commands.options import bundle_argument
from foredraft.disk_space import naming_full_disk

if TYPE_CHECKING:
    from rich.console import Console

    from foredraft.bench.comparison import Comparison
    from foredraft.bench.contest import Contest, Rig
    from foredraft.bench.hardware import Hardware
    from foredraft.bench.simulate import Simulation
    from foredraft.bench.sweep import Verdict
    from foredraft.bundle import Bundle
    from foredraft.engines.protocol import Engine
    from foredraft.sampling.params import SamplingParams

DRAFTERS = "none,prompt-lookup,context,blend"
TRACED = 6
"""Categories whose first question's texts the report shows."""
EXAMPLES = """
Examples:

\b
  foredraft bench smollm2-135m.foredraft --questions prompts.jsonl --drafters none,suffix,blend
  foredraft bench BUNDLE --questions spec_bench.jsonl --per-category 4 --threads 1 --repeats 3
  foredraft bench BUNDLE --questions prompts.jsonl --temperature 1.0 --seed 7 --json out.json
  foredraft bench BUNDLE --questions prompts.jsonl --report out.html
  foredraft bench BUNDLE --questions prompts.jsonl --policies tree,hispec:draft_tokens=2,tentative=4,auto
  foredraft bench BUNDLE --questions prompts.jsonl --policies tree,echo,auto --simulate gpu-7b
  foredraft bench BUNDLE --questions prompts.jsonl --sweep-exits
"""


@click.command(short_help="Compare drafters or policies on a file of questions.", epilog=EXAMPLES)
@bundle_argument
@click.option("--questions", required=True, type=click.Path(path_type=Path), help="JSONL with 'prompt' or 'turns'.")
@click.option("--drafters", metavar="NAMES", help=f"Comma-separated [default: {DRAFTERS}; with policies: blend].")
@click.option(
    "--policies", multiple=True, metavar="NAMES", help="Compare these, comma-separated; see docs/policies.md."
)
@click.option("--sweep-exits", is_flag=True, help="Find out which exits pay, and how to use them.")
@click.option("--simulate", metavar="NAME", help="Also on hardware that is not here: gpu-7b, gpu-7b-int4, cpu-7b-int4.")
@click.option("--db", "databases", type=click.Path(path_type=Path), multiple=True, metavar="FILE", help="A database.")
@click.option("--levels", metavar="NAMES", help="Levels that blend drafts from: context,model,corpus,recycled.")
@click.option("--max-tokens", default=128, show_default=True, type=click.IntRange(1), help="Longest answer.")
@click.option("--per-category", type=click.IntRange(1), help="Only the first so many questions of each category.")
@click.option("--policy", metavar="NAME", help="auto, fixed:N (N nodes), or a scheme's name [default: auto].")
@click.option("--temperature", default=0.0, show_default=True, type=float, help="0 is greedy.")
@click.option("--top-p", default=1.0, show_default=True, type=float)
@click.option("--seed", default=0, show_default=True, type=int)
@click.option("--threads", type=click.IntRange(1), help="Threads of the engine [default: all cores].")
@click.option("--lowering", default="auto", show_default=True, type=click.Choice(["auto", "kernels", "portable"]))
@click.option("--device", default="auto", show_default=True, type=click.Choice(["auto", "cpu", "cuda"]))
@click.option(
    "--provider", default="cpu", show_default=True, type=click.Choice(["cpu", "cuda", "tensorrt", "tensorrt-rtx"])
)
@click.option("--repeats", default=1, show_default=True, type=click.IntRange(1), help="Timings are their medians.")
@click.option("--raw", is_flag=True, help="Give the prompts as they are, without the chat template.")
@click.option("--show-text", is_flag=True, help="Print each answer as it is finished.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures here ('-': print them).")
@click.option("--report", type=click.Path(path_type=Path), metavar="OUT.html", help="Write a page of plots and texts.")
def bench(
    bundle: Path,
    questions: Path,
    drafters: str | None,
    policies: tuple[str, ...],
    sweep_exits: bool,
    simulate: str | None,
    databases: tuple[Path, ...],
    levels: str | None,
    max_tokens: int,
    per_category: int | None,
    policy: str | None,
    temperature: float,
    top_p: float,
    seed: int,
    threads: int | None,
    lowering: str,
    device: str,
    provider: str,
    repeats: int,
    raw: bool,
    show_text: bool,
    json_path: Path | None,
    report: Path | None,
) -> None:
    """Write the same answers with several drafters, or policies, question by question; compare speed and tokens.

    Exits with 1 if any answer differs from plain decoding's and the engine is exact, as the CPU's are. Speeds are
    decoding only; the prompt's own forward is left out, for all alike. Ctrl-C ends it early, with the figures of the
    questions finished so far.
    """
    from foredraft import Bundle, SamplingParams
    from foredraft.bench.compare import compare
    from foredraft.bench.contest import Rig
    from foredraft.bench.questions import read_questions
    from foredraft.bench.table import console, render
    from foredraft.engines.select import open_engine

    _check_folders(json_path, report)
    asked = read_questions(questions, per_category)
    sampling = SamplingParams(temperature=temperature, top_p=top_p, seed=seed)
    opened = Bundle.open(bundle)
    engine = open_engine(opened, device, threads, lowering, provider)
    rig, elsewhere = Rig(opened, engine, databases, levels), _elsewhere(simulate)
    contest = _contest(rig, drafters, policy, policies, sweep_exits, elsewhere)
    growing = compare(
        opened,
        engine,
        asked,
        contest.names,
        max_tokens=max_tokens,
        sampling=sampling,
        repeats=repeats,
        chat=not raw,
        open_session=contest.open_session,
        traced=TRACED if report else 0,
        kind=contest.kind,
    )
    screen = console(stderr=json_path == Path("-"))
    comparison, interrupted = _finish(growing, screen, _print_answer(screen) if show_text else None)
    title = f"{opened.manifest.model.name}, {engine.name}, {engine.threads} threads"
    title += f", {len(comparison.finished)} of {len(asked)} questions"
    screen.print(render(comparison, title, details=not sweep_exits))
    found = _verdicts(comparison, opened, screen) if sweep_exits else []
    simulation = _simulation(comparison, rig, elsewhere, sampling, screen) if simulate else None
    settings = f"at most {max_tokens} tokens, temperature {temperature:g}, {contest.settings}, repeats {repeats}"
    _write(comparison, _about(opened, engine, settings), json_path, report, found, simulation)
    if interrupted:
        click.echo(f"interrupted after {len(comparison.finished)} of {len(asked)} questions", err=True)
        raise SystemExit(130)
    if comparison.unequal and engine.exact:
        raise SystemExit(1)


def _elsewhere(simulate: str | None) -> Hardware | None:
    """The hardware to simulate, if it is not this machine."""
    from foredraft.bench.hardware import HERE, hardware

    return hardware(simulate) if simulate not in (None, HERE) else None


def _contest(
    rig: Rig,
    drafters: str | None,
    policy: str | None,
    policies: tuple[str, ...],
    sweep_exits: bool,
    elsewhere: Hardware | None,
) -> Contest:
    """What the options ask to compare. Raises click.UsageError where they contradict each other."""
    from foredraft.bench import contest, sweep
    from foredraft.bench.compare import check_drafters
    from foredraft.drafters import DEFAULT, names

    if sum(map(bool, (policy, policies, sweep_exits))) > 1:
        raise click.UsageError("give one of --policy (to compare drafters under), --policies and --sweep-exits")
    chosen = contest.split_names(DRAFTERS if drafters is None else drafters)
    check_drafters(chosen, names())
    several = sweep.sweep(rig.exits) if sweep_exits else contest.split_policies(policies)
    if not several or (len(several) == 1 and drafters and len(set(chosen) - {"none"}) > 1):
        return contest.between_drafters(rig, chosen, policy or (several or ["auto"])[0])
    drafter = contest.one_drafter([] if drafters is None else chosen, several, DEFAULT)
    return contest.between_policies(rig, several, drafter, elsewhere)


def _check_folders(*paths: Path | None) -> None:
    """Found out before the work rather than after it."""
    from foredraft.errors import RequestError

    for path in paths:
        if path and not path.parent.is_dir():
            raise RequestError(f"{path}: its folder does not exist")


def _verdicts(comparison: Comparison, bundle: Bundle, screen: Console) -> list[Verdict]:
    from foredraft.bench.sweep import verdicts
    from foredraft.bench.table import render_verdicts

    layers = [*bundle.manifest.exits, bundle.manifest.model.layers]
    found = verdicts(comparison, layers) if comparison.finished else []
    screen.print(render_verdicts(found))
    return found


def _simulation(
    comparison: Comparison, rig: Rig, elsewhere: Hardware | None, sampling: SamplingParams, screen: Console
) -> Simulation:
    """Of what was compared, on other hardware or, to see whether to believe it, on this."""
    from foredraft.bench.hardware import HERE
    from foredraft.bench.host import measured_host
    from foredraft.bench.simulate import calibrated, simulate
    from foredraft.bench.table import render_simulation
    from foredraft.scheduling.measure import measured_parts

    if elsewhere:
        times, host, about = elsewhere.times(rig.layers), elsewhere.host, elsewhere.describe()
    else:
        alone = measured_parts(rig.bundle, rig.engine, comparison.usual_context()).times
        times, host = calibrated(comparison, alone, measured_host(rig.bundle.manifest.model.vocab_size, sampling))
        slower = times(rig.exits, 1) / alone(rig.exits, 1)
        us = (
            f"{host.round * 1e6:.0f} us per round, {host.pick * 1e6:.0f} per pick, {host.opinion * 1e6:.0f} per opinion"
        )
        about = f"{HERE}: curves as measured, times {slower:.2f}; {us}"
    simulation = simulate(comparison, elsewhere.name if elsewhere else HERE, about, times, host)
    screen.print(render_simulation(simulation, comparison))
    return simulation


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


def _write(
    comparison: Comparison,
    about: dict[str, str],
    json_path: Path | None,
    report: Path | None,
    found: list[Verdict],
    simulation: Simulation | None,
) -> None:
    figures = {"about": about, **comparison.to_json()}
    if found:
        figures["exits"] = [verdict.to_json() for verdict in found]
    if simulation:
        figures["simulated"] = simulation.to_json()
    if json_path == Path("-"):
        click.echo(json.dumps(figures))
    elif json_path:
        with naming_full_disk(json_path):
            json_path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if report:
        from foredraft.bench.report import write_report

        write_report(report, comparison, about)
        click.echo(f"wrote {report}", err=True)
