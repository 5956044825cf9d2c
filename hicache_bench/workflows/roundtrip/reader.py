"""A second process that joins the cluster, restores what the first one saved, and checks every byte.

It shares nothing with the writer but the master's address and the seed: it builds the model, the keys and the
expected bytes itself. ``python -m hicache_bench.workflows.roundtrip.reader`` reads one request, in JSON, from
standard input, and answers in JSON on standard output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import IO, Any

from hicache_bench.config.load import parse_model
from hicache_bench.config.write import write_preset
from hicache_bench.errors import HicacheBenchError, StoreError
from hicache_bench.planning.policy import SavePolicy, TransferPolicy
from hicache_bench.records.proof import Proof
from hicache_bench.records.schema import Check
from hicache_bench.store.base import KVStoreBackend
from hicache_bench.workflows.cluster import lay_out_ranks, members_of
from hicache_bench.workflows.rank import equal
from hicache_bench.workflows.roundtrip.byte_proofs import ByteJob, BytePlan, Tally
from hicache_bench.workflows.stores import open_store
from hicache_bench.workflows.variant import Variant, VariantOptions, apply_options

MODULE = "hicache_bench.workflows.roundtrip.reader"
LIMIT_SECONDS = 120.0
"""When a reader that has not answered is killed. It takes a few seconds to join, and as many to leave."""


def reader_proof(
    job: ByteJob,
    num_pages: int,
    *,
    master: str,
    checksum: bool = False,
    command: Sequence[str] = (sys.executable, "-m", MODULE),
    limit_seconds: float = LIMIT_SECONDS,
) -> Proof:
    """Let another process restore the prefix of ``num_pages`` that ``job`` has saved."""
    started = time.perf_counter()
    request = json.dumps(
        {
            "preset": _preset_text(job.variant),
            "options": asdict(job.variant.options),
            "master": master,
            "pages": num_pages,
            "batch_pages": job.plan.batch_pages,
            "save_policy": str(job.plan.save_policy),
            "policies": [policy.value for policy in job.policies],
            "seed": job.seed,
            "checksum": checksum,
        }
    )
    answer = _ask(command, request, limit_seconds)
    checks = [equal("what kept the reader from answering", "nothing", answer.get("problem", "nothing"))]
    checks += [Check(**check) for check in answer.get("checks", ())]
    if "problem" not in answer:
        checks.append(
            equal("keys are those of the writer", job.variant.spec.digest, str(answer.get("digest")))
        )
        found = int(answer.get("bytes_compared", 0))
        checks.append(Check("bytes compared by the reader", "at least 1", str(found), found > 0))
    return Proof(
        section="reader",
        name=f"{num_pages} pages in a process of its own",
        subject=job.variant.spec.name,
        checks=tuple(checks),
        figures={name: answer[name] for name in ("bytes_compared", "gb_per_s") if name in answer},
        seconds=round(time.perf_counter() - started, 6),
    )


def _preset_text(variant: Variant) -> str:
    """The preset as a file, so that a reader needs none."""
    preset = variant.preset
    sources = dict.fromkeys(preset.spec.attentions, "the writer")
    return write_preset(preset.spec, sources=sources, summary=preset.summary, profile=preset.profile)


def _ask(command: Sequence[str], request: str, limit_seconds: float) -> Mapping[str, Any]:
    """The reader's answer, or its problem in one line. No process is left."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            out, err = process.communicate(request, timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            return {"problem": f"no answer within {limit_seconds:g} s; it was killed"}
        finally:
            process.kill()
    try:
        answer = json.loads(out)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        last = (err.strip().splitlines() or ["it said nothing"])[-1]
        return {"problem": f"exit code {process.returncode}: {last}"}
    return answer


def answer_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Restore and verify what the request names.

    Raises:
        HicacheBenchError: the store cannot be joined, does not hold it or does not deliver it.
    """
    variant = apply_options(
        parse_model(request["preset"].encode(), file="the request"), VariantOptions(**request["options"])
    )
    save_policy = SavePolicy.parse(request["save_policy"])
    members = members_of(variant)
    page_tokens = members[0].registry.registered[0].page_tokens
    cluster = lay_out_ranks(members, request["pages"] * page_tokens, save_policy)
    tally = Tally()
    with open_store("mooncake", stored_bytes=0, master=request["master"]) as opened:
        job = ByteJob(
            variant=variant,
            plan=BytePlan(
                clusters=(cluster,),
                save_policy=save_policy,
                batch_pages=request["batch_pages"],
                needed_bytes=cluster.host_bytes,
            ),
            store=_checked(opened.backend, checksum=request["checksum"]),
            policies=tuple(map(TransferPolicy, request["policies"])),
            seed=request["seed"],
            progress=_quiet,
        )
        checks = job.length_job(cluster, tally).verify()
    return {
        "checks": [asdict(check) for check in checks],
        "digest": variant.spec.digest,
        "bytes_compared": tally.compared_bytes,
        "gb_per_s": round(tally.gb_per_s, 3),
    }


def _checked(store: KVStoreBackend, *, checksum: bool) -> KVStoreBackend:
    if not checksum:
        return store
    from hicache_bench.store.checksum import ChecksumStore
    from hicache_bench.workflows.roundtrip.faults import checksum_digest

    return ChecksumStore(store, checksum_digest())


def _quiet(_step: str) -> None:
    """Progress that the writer does not show."""


@contextmanager
def _own_output() -> Iterator[IO[str]]:
    """Standard output for the answer alone: whatever a library prints goes to standard error."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as output:
        os.dup2(2, 1)
        yield output


def main() -> int:
    """Answer one request; return the exit code."""
    with _own_output() as output:
        try:
            answer = answer_request(json.load(sys.stdin))
        except HicacheBenchError as problem:
            answer = {"problem": str(problem)}
        json.dump(answer, output)
    return StoreError.exit_code if "problem" in answer else 0


if __name__ == "__main__":
    sys.exit(main())
