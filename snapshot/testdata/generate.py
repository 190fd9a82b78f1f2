#!/usr/bin/env python3
"""Write the golden vectors of package snapshot with the engine's own encoders.

    pip install msgspec pyzmq
    python generate.py --sglang DIR --out DIR

--sglang is the folder that holds an unpacked `sglang` package (a wheel, say);
nothing of it is installed or imported as a package. The two modules that define
the wire are loaded by file, with their imports from the rest of the engine
replaced by empty stand-ins: neither encoder uses any of them.

The output depends on nothing but the code that was loaded, so that running this
again shows whether the wire has changed.
"""

import argparse
import ast
import importlib.util
import json
import pathlib
import sys
import types

import msgspec

sys.dont_write_bytecode = True  # --sglang is not ours to write to

SNAPSHOT = "sglang.srt.managers.load_snapshot"
PUBLISHER = "sglang.srt.managers.scheduler_components.load_publisher"
KV_EVENTS = "sglang.srt.disaggregation.kv_events"
STAND_INS = (
    "sglang.srt.environ",
    "sglang.srt.runtime_context",
    "sglang.srt.utils.network",
    KV_EVENTS,
)


class StandIn(types.ModuleType):
    """A module that has every name; whatever is called returns None."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def path_of(root, module):
    return root.joinpath(*module.split(".")).with_suffix(".py")


def load(root, module):
    """Load one file of the engine under its own name."""
    spec = importlib.util.spec_from_file_location(module, path_of(root, module))
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[module] = loaded  # msgspec looks annotations up by module name
    spec.loader.exec_module(loaded)
    return loaded


def constant(root, module, name):
    """Read a constant of a module that is too heavy to load."""
    for node in ast.parse(path_of(root, module).read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    raise SystemExit(f"{module} does not define {name}")


def load_engine(root):
    for name in STAND_INS:
        parts = name.split(".")
        for n in range(1, len(parts)):
            package = sys.modules.setdefault(".".join(parts[:n]), StandIn(parts[n - 1]))
            package.__path__ = []  # or the import system refuses its children
        sys.modules[name] = StandIn(name)
    sys.modules[KV_EVENTS].LOAD_TOPIC = constant(root, KV_EVENTS, "LOAD_TOPIC")
    return load(root, SNAPSHOT), load(root, PUBLISHER)


BOUNDARIES = (1, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1)
NAN, INF = float("nan"), float("inf")


def scalars(step):
    """A distinct value for every scalar field, counts in several widths."""
    return dict(
        timestamp=1764439200.125,
        dp_rank=3,
        num_running_reqs=17 * step,
        num_waiting_reqs=5 * step,
        num_waiting_uncached_tokens=40960 * step,
        num_used_tokens=131072 * step,
        num_total_tokens=172032 * step,
        num_active_tokens=170001 * step,
        num_prealloc_ready_tokens=2048 * step,
        max_total_num_tokens=524288 * step,
        max_running_requests=200 * step,
        token_usage=0.25,
        gen_throughput=1234.56,
        cache_hit_rate=0.8125,
        utilization=0.7512,
        total_prefill_uncached_tokens=123456789 * step,
        total_prefill_busy_us=9876543210 * step,
    )


def snapshot_cases(m):
    """Yield (name, LoadSnapshot, canonical): canonical means that every value
    has the type its field declares, which the encoder does not enforce."""
    new = m.LoadSnapshot
    moments = [4.0, 0.5, 16.25, 0.125, 2.0, 1e-9]
    sections = dict(
        memory=m.MemoryMetrics(14.899, 40.25, 1.125, 524288),
        speculative=m.SpeculativeMetrics(2.75, 0.875),
        lora=m.LoRAMetrics(2, 8, 0.25),
        disaggregation=m.DisaggregationMetrics("decode", 1, 2, 3, 4, 5, 1.5, 12.25),
        queues=m.QueueMetrics(5, 1, 2, 3, 4),
    )

    yield "idle rank that sets nothing", new(), True
    yield "idle rank with a timestamp alone", new(timestamp=1764439200.125), True
    for name, value in scalars(1).items():
        yield f"{name} alone", new(**{name: value}), True
    for name, value in sections.items():
        yield f"section {name} alone", new(**{name: value}), True
    yield "decode moments alone", new(decode_moments=moments), True
    yield "decode moments, none of them", new(decode_moments=[]), True
    yield "every core field", new(**scalars(1)), True
    yield "every core field, large", new(**scalars(1000)), True
    yield "every field and section", new(**scalars(1), decode_moments=moments, **sections), True
    yield "busy rank without speculation and adapters", new(
        **scalars(1),
        memory=sections["memory"],
        disaggregation=m.DisaggregationMetrics("null"),
        queues=m.QueueMetrics(5, 0, 0, 0, 0),
    ), True
    yield "disaggregation, prefill role", new(disaggregation=m.DisaggregationMetrics("prefill", 7, 300)), True
    yield "disaggregation, a mode nobody has heard of", new(disaggregation=m.DisaggregationMetrics("encode")), True

    # The encoder compares with the default by identity, so a zero that came out
    # of a computation is sent.
    zero = float("0")
    yield "floats computed to zero", new(
        timestamp=zero, token_usage=zero, gen_throughput=zero, cache_hit_rate=zero, utilization=zero
    ), True

    for n in BOUNDARIES:
        yield f"count {n}", new(num_used_tokens=n, total_prefill_busy_us=n), True
    for f in (5e-324, 1e-9, 0.1, 1.0, 1e300, 1.7976931348623157e308):
        yield f"float {f!r}", new(gen_throughput=f), True

    yield "integers where floats belong", new(timestamp=1764439200, token_usage=1, gen_throughput=2**40), False
    yield "floats where integers belong", new(num_running_reqs=3.0, num_used_tokens=131072.0), False
    yield "section with integers where floats belong", new(memory=m.MemoryMetrics(14, 40, 1, 524288.0)), False
    yield "core counts that are None", new(num_running_reqs=None, num_waiting_uncached_tokens=None), True


def stat_cases(m):
    """Yield (name, LoadStat, length): length cuts the array to what senders
    before the current one wrote."""
    new = m.LoadStat
    full = dict(
        num_running_reqs=17,
        num_waiting_reqs=5,
        num_tokens=131072,
        max_total_num_tokens=524288,
        attn_dp_rank=3,
        num_waiting_uncached_tokens=40960,
        num_total_tokens=172032,
        max_running_requests=200,
        total_prefill_uncached_tokens=123456789,
        total_prefill_busy_us=9876543210,
    )
    yield "idle", new(0, 0, 0, 0), 11
    yield "idle rank 0 with a capacity", new(0, 0, 0, 524288, 0), 11
    yield "eleven elements with a rank", new(**full), 11
    yield "eleven elements without a rank", new(**{**full, "attn_dp_rank": None}), 11
    yield "uncached tokens not known", new(**{**full, "num_waiting_uncached_tokens": None}), 11
    yield "counters started, nothing else", new(0, 0, 0, 0, 0, 0, 0, 0, 1, 1), 11
    yield "six elements with a rank", new(**full), 6
    yield "six elements without a rank", new(**{**full, "attn_dp_rank": None}), 6
    yield "seven elements", new(**full), 7
    yield "seven elements, uncached tokens not known", new(**{**full, "num_waiting_uncached_tokens": None}), 7
    yield "seven elements, nothing uncached", new(**{**full, "num_waiting_uncached_tokens": 0}), 7
    for n in BOUNDARIES:
        yield f"count {n}", new(n, n, n, n, 0, n, n, n, n, n), 11


def broken_cases(snap, pub):
    """Yield (name, message, reason, fields): reason for a message that must be
    refused, else the fields that must be refused while the rest stands."""
    new, stat = snap.LoadSnapshot, pub.LoadStat
    for reason, values in (
        ("negative", (-1, -33, -(2**31), -(2**63), -1.0)),
        ("not_finite", (NAN, INF, -INF)),
        ("not_integer", (0.5,)),
        ("out_of_range", (2**63, 2**64 - 1, 1e19)),
        ("type", ("3", True, [3], {"a": 3})),
    ):
        for value in values:
            yield f"snapshot count {value!r}", new(num_running_reqs=value), reason, []
            yield f"stat count {value!r}", stat(0, value, 0, 0), reason, []
    for value in (-0.5, -1, NAN, INF, -INF, "0.5", False, [0.5]):
        yield f"snapshot ratio {value!r}", new(num_running_reqs=2, token_usage=value), "", ["token_usage"]
    for value in (-1, 0.5, 2**64 - 1, "0"):
        yield f"snapshot rank {value!r}", new(num_running_reqs=2, dp_rank=value), "", ["dp_rank"]
        yield f"stat rank {value!r}", stat(2, 0, 0, 0, value), "", ["dp_rank"]
    for name, value in (
        ("decode_moments", [1.0, NAN]),
        ("decode_moments", [1.0] * 17),
        ("decode_moments", 7),
        ("memory", snap.MemoryMetrics(1.0, NAN, 1.0, 1)),
        ("memory", snap.MemoryMetrics(1.0, 1.0, 1.0, -1)),
        ("speculative", snap.SpeculativeMetrics(None, 0.5)),
        ("lora", snap.LoRAMetrics(1, 2, INF)),
        ("disaggregation", snap.DisaggregationMetrics("m" * 33)),
        ("disaggregation", snap.DisaggregationMetrics(3)),
        ("queues", {"waiting": 1}),
    ):
        yield f"snapshot {name} {value!r}", new(num_running_reqs=2, **{name: value}), "", [name]


def messages(snap, pub):
    """Yield the frames that the real publisher hands to its socket."""
    sent = []
    publisher = pub.SchedulerLoadPublisher(kv_events_config=None)
    publisher._socket = types.SimpleNamespace(send_multipart=sent.append, close=lambda: None)
    for step in (0, 1, 1000):
        publisher.publish_load_stat(lambda: snap.LoadSnapshot(**scalars(step)), force=True)
    return [[frame.hex() for frame in frames] for frames in sent]


def write(out, name, vectors):
    out.joinpath(name).write_text(
        "[\n" + ",\n".join(json.dumps(v, ensure_ascii=True) for v in vectors) + "\n]\n"
    )


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--sglang", type=pathlib.Path, required=True, help="folder with the unpacked sglang package")
    args.add_argument("--out", type=pathlib.Path, required=True, help="folder to write to")
    args = args.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    snap, pub = load_engine(args.sglang)
    encode_snapshot, encode_stat = snap.snapshot_encoder.encode, pub._encoder.encode
    # What is on the wire, decoded without the engine's types.
    decode = msgspec.msgpack.decode

    vectors = []
    for name, value, canonical in snapshot_cases(snap):
        data = encode_snapshot(value)
        vectors.append(dict(name=name, hex=data.hex(), canonical=canonical, fields=decode(data)))
    write(args.out, "loadsnapshot.json", vectors)

    vectors = []
    for name, value, length in stat_cases(pub):
        data = encode_stat(value)
        if length < len(decode(data)):
            data = encode_stat(decode(data)[:length])
        vectors.append(dict(name=name, hex=data.hex(), elements=decode(data)))
    write(args.out, "loadstat.json", vectors)

    vectors = []
    for name, value, reason, refused in broken_cases(snap, pub):
        encode = encode_stat if isinstance(value, pub.LoadStat) else encode_snapshot
        vectors.append(dict(name=name, hex=encode(value).hex(), reason=reason, refused=refused))
    write(args.out, "broken.json", vectors)

    write(args.out, "messages.json", messages(snap, pub))


if __name__ == "__main__":
    main()
