"""The commands and what they take; the work is in the module of each command's name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from tier_router.cli.source import resolve
from tier_router.errors import RequestError, TierRouterError

app = typer.Typer(
    name="tier-router",
    help="Routes each chat request to the smallest self-hosted vLLM tier that answers it well.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ConfigPath = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="The configuration; ./config.yaml where left out, else the one in the package.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]

LogFormat = Annotated[
    Literal["decisions", "openai", "litellm", "vllm", "plain"] | None,
    typer.Option(help="What the log's lines are; seen from the first ones where left out."),
]
LogEngine = Annotated[
    Literal["polars", "ray"], typer.Option(help="This machine, or a Ray cluster (RAY_ADDRESS).")
]
MostJudged = Annotated[
    int,
    typer.Option(help="Prompts that are judged, drawn at random from a longer log; 0: all.", min=0),
]


@app.command()
def serve(
    config: ConfigPath = None,
    host: Annotated[str | None, typer.Option(help="Overrides `server.host`.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Overrides `server.port`; 0 takes a free one.", min=0)
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Overrides `server.workers`: processes on the port.", min=1)
    ] = None,
    log_level: Annotated[
        str, typer.Option(help="debug (one line a decision), info, warning or error.")
    ] = "info",
    table: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve the OpenAI-compatible endpoint until SIGTERM."""
    from tier_router.cli.serve import run

    run(resolve(config), host, port, workers, log_level, table)


@app.command()
def openapi() -> None:
    """Print the OpenAPI document of what `serve` answers."""
    from tier_router_proxy.openapi import encoded

    typer.echo(encoded())


@app.command()
def check(
    config: ConfigPath = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema for editors instead.")
    ] = False,
) -> None:
    """Check a configuration without starting anything."""
    from tier_router.cli.check import run, show_schema

    if schema:
        show_schema()
    else:
        run(resolve(config))


@app.command()
def doctor(
    path: Annotated[
        Path | None,
        typer.Argument(
            metavar="[CONFIG]",
            help="The configuration; found as for the other commands where left out.",
            show_default=False,
        ),
    ] = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds that each answer of a replica may take.", min=0.1)
    ] = 15.0,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit code 1 for warnings too, not only for errors.")
    ] = False,
) -> None:
    """Look at every replica, and say what is wrong with it and what would mend it."""
    from tier_router.cli.doctor import run

    raise typer.Exit(run(resolve(path or config), as_json, timeout, strict))


@app.command()
def explain(
    text: Annotated[
        str | None,
        typer.Argument(
            help="A prompt, a file with a request body, or `-` for standard input.",
            show_default=False,
        ),
    ] = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """Say where a request would go, and why."""
    from tier_router.cli.explain import run

    run(resolve(config), text, as_json)


@app.command()
def score(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.jsonl",
            help="Prompts or request bodies, one JSON value a line; `-` for standard input.",
        ),
    ],
    config: ConfigPath = None,
) -> None:
    """Decide each line of a log of prompts or request bodies; one decision a line comes out."""
    from tier_router.cli.score import run

    raise typer.Exit(run(resolve(config), log))


@app.command()
def calibrate(
    log: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE.jsonl",
            help="Prompts or request bodies of your traffic, as `score` reads them.",
            show_default=False,
        ),
    ] = None,
    heavy_share: Annotated[
        float | None,
        typer.Option(
            help="Share of the log's requests that is to go above the lightest tier.", min=0, max=1
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="Requests with `scores: {TIER: 0..1, ...}` or `preferred: TIER`, one a line.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write, for `policy.calibration`.")] = Path(
        "calibration.yaml"
    ),
    config: ConfigPath = None,
) -> None:
    """Fit the threshold, and with labels the difficulty, to your own traffic."""
    from tier_router.cli.calibrate import run

    run(resolve(config), log, heavy_share, labels, out)


@app.command()
def demo(
    seconds: Annotated[
        float, typer.Option(help="Seconds of load in each of the two runs.", min=2, max=600)
    ] = 8.0,
    as_json: AsJson = False,
) -> None:
    """Show what tiers do: the same load through one big model and through two tiers."""
    from tier_router.cli.demo import run

    run(seconds, as_json)


@app.command("litellm-config")
def litellm_config(config: ConfigPath = None) -> None:
    """Print LiteLLM's YAML for the replicas of a configuration."""
    from tier_router.cli.litellm_config import run

    run(resolve(config))


@app.command("pruning-report")
def pruning_report(
    log: Annotated[
        Path | None,
        typer.Argument(
            metavar="[LOG]",
            help="Decisions, one a line; `-` for standard input. Without it, what "
            "`pruning.proofs` holds is shown.",
        ),
    ] = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """Show what pruning saved, and which lossy steps have proven that they lose nothing."""
    from tier_router.cli.pruning_report import run
    from tier_router.config import load

    run(log, load(resolve(config)).pruning, as_json)


@app.command()
def report(
    log: Annotated[
        Path | None,
        typer.Argument(
            metavar="LOG",
            help="Decisions, OpenAI-style requests, LiteLLM's spend log, vLLM's log, or a prompt a "
            "line; `-` for standard input, .gz is unpacked.",
            show_default=False,
        ),
    ] = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one self-contained page too.")
    ] = None,
    format: LogFormat = None,
    engine: LogEngine = "polars",
    judge: MostJudged = 100_000,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of the decision log instead.")
    ] = False,
) -> None:
    """Say what share of a log needs the largest model, and what the tiers would save."""
    from tier_router.cli.report import run, show_schema
    from tier_router.evidence import Engine, Format

    if schema:
        show_schema()
    elif log is None:
        raise RequestError("give a log to report on")
    else:
        chosen = None if format is None else Format(format)
        run(resolve(config), log, as_json, html, Engine(engine), chosen, judge)


@app.command()
def simulate(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG", help="A log as `report` reads it, or a trace (.csv, .csv.gz)."
        ),
    ],
    config: ConfigPath = None,
    rate: Annotated[
        float | None,
        typer.Option(help="Requests a second; the log's own where left out.", min=1e-6),
    ] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ttft=SECONDS",
            help="Search the replicas that meet it; or latency=SECONDS.  May be repeated.",
        ),
    ] = None,
    percentile: Annotated[
        float, typer.Option(help="The percentile that --slo is about.", min=1, max=100)
    ] = 95.0,
    heavy_share: Annotated[
        float | None,
        typer.Option(help="Share of hard requests, for a trace that does not say.", min=0, max=1),
    ] = None,
    most: Annotated[int, typer.Option(help="Requests that are played, from the first.", min=1)] = (
        10_000
    ),
    format: LogFormat = None,
    as_json: AsJson = False,
) -> None:
    """Play a log's arrivals through the tiers: queues before and after, on the same hardware."""
    from tier_router.cli.simulate import run
    from tier_router.evidence import Format

    chosen = None if format is None else Format(format)
    raise typer.Exit(
        run(resolve(config), log, rate, slo or [], percentile, heavy_share, most, chosen, as_json)
    )


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD.yaml", help="The configuration as it is.")],
    new: Annotated[Path, typer.Argument(metavar="NEW.yaml", help="The one that may follow it.")],
    log: Annotated[Path, typer.Argument(metavar="LOG", help="A log as `report` reads it.")],
    max_moved: Annotated[
        str | None,
        typer.Option(metavar="2%", help="Exit code 1 where a larger share of requests moves."),
    ] = None,
    format: LogFormat = None,
    engine: LogEngine = "polars",
    judge: MostJudged = 100_000,
    as_json: AsJson = False,
) -> None:
    """Show which requests of a log move between two configurations, and why."""
    from tier_router.cli.diff import run
    from tier_router.evidence import Engine, Format

    chosen = None if format is None else Format(format)
    raise typer.Exit(run(old, new, log, max_moved, Engine(engine), chosen, judge, as_json))


def main() -> None:
    """Runs the command line; an error is one line on standard error and an exit code of 1 or 2."""
    try:
        app()
    except TierRouterError as error:
        _fail(str(error))
    except ImportError as error:
        _fail(f"{error} (pip install 'tier-router[proxy]')" if error.name in _PROXY else str(error))
    except BrokenPipeError:  # `| head`
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _fail(f"{where}{error.strerror or error}")


_PROXY = frozenset({"h11", "httptools", "prometheus_client"})


def _fail(message: str) -> None:
    print(f"tier-router: {message}", file=sys.stderr)
    sys.exit(1)
