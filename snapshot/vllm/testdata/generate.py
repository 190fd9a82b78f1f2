#!/usr/bin/env python3
"""Write the golden vectors of package vllm with the engine's own code.

    pip install msgspec numpy psutil pydantic pyzmq urllib3
    python generate.py --vllm DIR --out DIR

--vllm is the folder that holds an unpacked `vllm` package (a wheel, say), or as
much of it as is loaded; nothing of it is installed. The modules that make the
wire are loaded from their files as they are. Whatever else they import of the
engine, and torch, is replaced by stand-ins. A tensor and an array look the same
on the wire, so arrays stand for both.

The file with the outputs has the version in its name: the layout of one output
has changed between versions, and each is written by its own code.

The output depends on nothing but the code that was loaded, so that running this
again shows whether the wire has changed.
"""

import argparse
import logging
import pathlib
import queue
import sys
import types

import msgspec
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "internal/conformance"))
import engines

LOADED = (  # as they are, where the version has them; everything else of the engine is a stand-in
    "vllm.envs",
    "vllm.outputs",
    "vllm.utils.network_utils",
    "vllm.v1.engine",
    "vllm.v1.metrics.cache_hit_source",
    "vllm.v1.metrics.stats",
    "vllm.v1.outputs",
    "vllm.v1.serial_utils",
    "vllm.v1.spec_decode.metrics",
)
MADE_UP = ("vllm", "torch", "cloudpickle", "prometheus_client", "uvloop")


def load_engine(root):
    """Return the engine's modules under the last parts of their names."""
    there = tuple(name for name in LOADED if engines.path_of(root, name).is_file())
    modules = engines.load(root, there, MADE_UP)
    return types.SimpleNamespace(**{m.__name__.removeprefix("vllm.").replace(".", "_"): m for m in modules})


def version_of(root):
    (metadata,) = root.glob("vllm-*.dist-info/METADATA")
    return next(line[9:] for line in metadata.read_text().splitlines() if line.startswith("Version: "))


BOUNDARIES = (1, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1)
NAN, INF = float("nan"), float("inf")
TIME = 1234.5


class Unknown(Exception):
    """This version has no such field."""


def has(struct, kwargs):
    fields = getattr(struct, "__struct_fields__", None) or struct.__dataclass_fields__
    for name in kwargs:
        if name not in fields:
            raise Unknown(f"{struct.__name__}.{name}")
    return struct(**kwargs)


class Maker:
    """Makes the engine's structs, of those fields that its version has."""

    def __init__(self, engine):
        self.reasons = engine.v1_engine.FinishReason
        self._engine, self._stats = engine.v1_engine, engine.v1_metrics_stats
        self._arrays, self._drafts = engine.v1_outputs, engine.v1_spec_decode_metrics
        self.old_usage = "gpu_cache_usage" in self._stats.SchedulerStats.__dataclass_fields__

    def outputs(self, *outputs, index=1, **kwargs):
        return has(
            self._engine.EngineCoreOutputs, dict(engine_index=index, outputs=list(outputs), timestamp=TIME, **kwargs)
        )

    def output(self, request_id, ids=(), finish=None, **kwargs):
        if isinstance(finish, str):
            if finish not in self.reasons.__members__:
                raise Unknown(finish)
            finish = self.reasons[finish]
        kwargs = dict(request_id=request_id, new_token_ids=list(ids), finish_reason=finish, **kwargs)
        return has(self._engine.EngineCoreOutput, kwargs)

    def stats(self, running=0, waiting=0, usage=0.0, **kwargs):
        kwargs["gpu_cache_usage" if self.old_usage else "kv_cache_usage"] = usage
        return has(self._stats.SchedulerStats, dict(num_running_reqs=running, num_waiting_reqs=waiting, **kwargs))

    def utility(self, call, failure=None, result=None):
        return self._engine.UtilityOutput(call, failure, result)

    def event(self, kind, at):
        return self._engine.EngineCoreEvent(self._engine.EngineCoreEventType[kind], at)

    def logprobs(self, n):
        """The logprobs of n new tokens: three arrays, or lists in old versions."""
        arrays = self._arrays.LogprobsLists
        ids = numpy.arange(n, dtype="i4").reshape(n, 1)
        values = [ids, -ids.astype("f4"), ids[:, 0]]
        if arrays.__annotations__["logprobs"] is not numpy.ndarray:
            values = [v.tolist() for v in values]
        return arrays(*values)

    def sampling_mask(self, n):
        if not hasattr(self._arrays, "SamplingMaskLists"):
            raise Unknown("SamplingMaskLists")
        return self._arrays.SamplingMaskLists(numpy.arange(n, dtype="i4"))

    def draft_stats(self):
        return self._drafts.SpecDecodingStats.new(3)

    def of_stats(self, name, *args, **kwargs):
        """A struct of the module of statistics, where the version has it."""
        if not hasattr(self._stats, name):
            raise Unknown(name)
        return getattr(self._stats, name)(*args, **kwargs)

    def error(self, *args):
        if "error" not in self._engine.EngineCoreOutput.__struct_fields__:
            raise Unknown("error")
        return self._engine.RequestError(*args)


def outputs_cases(m):
    """Yield (name, what makes the outputs, canonical), to be made before the next
    is asked for. Canonical means that every value has the type its field declares,
    which the encoder does not enforce."""
    one, two = lambda: m.output("a", [7]), lambda: m.output("b", [8, 9], "STOP", stop_reason=9)
    busy = lambda: m.stats(3, 5, 0.75)

    yield "nothing", lambda: m.outputs(index=0), True
    yield "one running", lambda: m.outputs(one(), scheduler_stats=busy()), True
    yield "one finished", lambda: m.outputs(two(), scheduler_stats=busy()), True
    yield "one running and one finished", lambda: m.outputs(one(), two(), scheduler_stats=busy()), True
    yield "outputs without load", lambda: m.outputs(one(), two()), True
    yield "load without outputs", lambda: m.outputs(scheduler_stats=busy()), True
    for name in ("STOP", "LENGTH", "ABORT", "ERROR", "REPETITION"):
        yield f"finished by {name}", lambda: m.outputs(m.output("a", [7], name)), True
    for n in (5, 127, 128, 2**63 - 1):
        yield f"finished by {n}, which is not known yet", lambda: m.outputs(m.output("a", [7], n)), False

    # The set of requests that have finished is of the type set, whose order
    # changes from run to run. A list is the same on the wire.
    yield "finished in both places", lambda: m.outputs(one(), two(), finished_requests={"b"}), True
    yield "finished without an output", lambda: m.outputs(finished_requests={"c"}), True
    yield "finished with others' outputs", lambda: m.outputs(
        one(), scheduler_stats=busy(), finished_requests={"c"}
    ), True
    yield "many finished", lambda: m.outputs(
        one(), two(), finished_requests=[f"req-{i}" for i in range(40)] + ["b"]
    ), True
    yield "none finished", lambda: m.outputs(one(), finished_requests=set()), True
    yield "aborted before they began", lambda: m.outputs(
        m.output("a", [], "ABORT"), m.output("b", [], "ABORT"), finished_requests=["a", "b"]
    ), True
    yield "the same request twice", lambda: m.outputs(one(), m.output("a", [8], "LENGTH")), True

    yield "a wave is complete", lambda: m.outputs(wave_complete=7), True
    yield "wave 0 is complete", lambda: m.outputs(wave_complete=0, index=0), True
    yield "a wave starts", lambda: m.outputs(start_wave=300), True
    yield "a wave is complete, with outputs and load", lambda: m.outputs(
        two(), scheduler_stats=busy(), finished_requests={"b"}, wave_complete=70000
    ), True
    yield "answer to a call", lambda: m.outputs(utility_output=m.utility(12345678901234567, result=[None, True])), True
    yield "answer to a call of rank 0", lambda: m.outputs(utility_output=m.utility(1), index=0), True
    yield "answer to a call that failed", lambda: m.outputs(utility_output=m.utility(2, "no such adapter")), True
    yield "answer of a map", lambda: m.outputs(
        utility_output=m.utility(3, result=[None, {"a": [1, 2.5, None], "b": {"c": "d"}, "e": b"\x00\x01"}])
    ), True
    yield "notification that nobody called for", lambda: m.outputs(
        utility_output=m.utility(-1, result=[None, ["RECONFIGURE_FINISHED", 1]])
    ), True
    yield "weight version", lambda: m.outputs(one(), scheduler_stats=busy(), weight_version="step-17"), True

    yield "every column of an output", lambda: m.outputs(
        m.output(
            "a",
            [7],
            "LENGTH",
            new_logprobs=m.logprobs(1),
            stop_reason="\n",
            events=[m.event("QUEUED", 1.5), m.event("SCHEDULED", 2.5)],
        ),
        one(),
    ), True
    yield "stop reason of a token", lambda: m.outputs(m.output("a", [2], "STOP", stop_reason=2)), True
    yield "stop reason of a string", lambda: m.outputs(m.output("a", [2], "STOP", stop_reason="</s>")), True
    yield "arrays in the payload", lambda: m.outputs(m.output("a", [7], new_logprobs=m.logprobs(4)), two()), True
    yield "arrays in frames of their own", lambda: m.outputs(
        m.output("a", range(300), new_logprobs=m.logprobs(300)), two(), scheduler_stats=busy()
    ), True
    array = numpy.linspace(0, 1, 8, dtype="f4")
    yield "pooled", lambda: m.outputs(m.output("a", [], "STOP", pooling_output=array)), True
    yield "pooled, in a frame of its own", lambda: m.outputs(
        m.output("a", [], "STOP", pooling_output=numpy.zeros(1024, "f4"))
    ), True
    yield "logprobs of the prompt", lambda: m.outputs(m.output("a", [7], new_prompt_logprobs_tensors=[array] * 3)), True
    yield "parameters of a transfer", lambda: m.outputs(
        m.output("a", [7], "LENGTH", kv_transfer_params={"do_remote_prefill": True, "blocks": [1, 2], "host": None})
    ), True
    yield "parameters of two transfers", lambda: m.outputs(
        m.output("a", [7], "LENGTH", kv_transfer_params={"a": 1}, ec_transfer_params={"b": {"c": []}})
    ), True
    yield "headers of a trace", lambda: m.outputs(
        m.output("a", [7], "STOP", trace_headers={"traceparent": "00-1-2-3"})
    ), True
    yield "cached tokens", lambda: m.outputs(m.output("a", [7], num_cached_tokens=70000)), True
    yield "NaNs in the logits", lambda: m.outputs(m.output("a", [7], num_nans_in_logits=4)), True
    yield "prefill", lambda: m.outputs(
        m.output("a", [7], prefill_stats=m.of_stats("PrefillStats", 100, 60, 40, 40))
    ), True
    yield "routed experts", lambda: m.outputs(
        m.output("a", [7], "STOP", routed_experts=numpy.ones((2, 4, 2), "i2"))
    ), True
    yield "missing images", lambda: m.outputs(m.output("a", [], "ERROR", mm_cache_miss_hashes=["f" * 64])), True
    yield "sampling mask", lambda: m.outputs(m.output("a", [7], "STOP", new_sampling_mask=m.sampling_mask(5))), True
    yield "drafts of a request", lambda: m.outputs(
        m.output("a", [7], "STOP", spec_decode_metrics=m.of_stats("RequestSpecDecodeMetrics", 3))
    ), True
    yield "error", lambda: m.outputs(
        m.output("a", [], "ERROR", error=m.error("paused", "the engine is paused", True))
    ), True

    for name, rid in (
        ("of no bytes", ""),
        ("of 31 bytes", "r" * 31),
        ("of 32 bytes", "r" * 32),
        ("of 255 bytes", "r" * 255),
        ("of 256 bytes", "r" * 256),
        ("in Unicode", "anfrage-\u00e9\u4e2d\U0001f6a2"),
        ("with a zero byte", "a\0b"),
        ("like the message of death", "ENGINE_CORE_DEAD"),
    ):
        yield f"request id {name}", lambda: m.outputs(m.output(rid, [1], "LENGTH"), finished_requests={rid}), True
    for n in (0, 1, 127, 128, 255, 256, 65535):
        yield f"engine index {n}", lambda: m.outputs(one(), index=n, scheduler_stats=busy()), True
    for n in BOUNDARIES:
        yield f"counts and ids {n}", lambda: m.outputs(m.output("a", [n]), scheduler_stats=m.stats(n, n, 0.5)), True
    for n in (15, 16, 300):
        yield f"{n} outputs", lambda: m.outputs(
            *(m.output(f"req-{i}", [i], "LENGTH" if i % 4 == 3 else None) for i in range(n)),
            scheduler_stats=m.stats(n, 7, 1.0),
        ), True
        yield f"{n} ids of one request", lambda: m.outputs(m.output("a", range(n))), True

    yield "load: idle", lambda: m.outputs(scheduler_stats=m.stats()), True
    for usage in (0.0, 5e-324, 1e-9, 0.1, 1 / 3, 0.9999999999999999, 1.0):
        yield f"load: KV usage {usage!r}", lambda: m.outputs(scheduler_stats=m.stats(1, 0, usage)), True
    yield "load: KV usage of an integer", lambda: m.outputs(scheduler_stats=m.stats(1, 0, 1)), False
    yield "load: with drafts", lambda: m.outputs(
        scheduler_stats=m.stats(3, 5, 0.75, spec_decoding_stats=m.draft_stats())
    ), True
    yield "load: with waves", lambda: m.outputs(
        scheduler_stats=m.stats(3, 5, 0.75, step_counter=40, current_wave=300)
    ), True
    yield "load: with adapters", lambda: m.outputs(
        scheduler_stats=m.stats(3, 5, 0.75, waiting_lora_adapters={"a": 1}, running_lora_adapters={"b": 2, "c": 3})
    ), True
    yield "load: with a transfer", lambda: m.outputs(
        scheduler_stats=m.stats(3, 5, 0.75, kv_connector_stats={"Nixl": {"times": [0.5, 1.5], "num_running_reqs": 99}})
    ), True
    yield "load: with evictions", lambda: m.outputs(
        scheduler_stats=m.stats(
            3, 5, 0.75, kv_cache_eviction_events=[m.of_stats("KVCacheEvictionEvent", 10.0, 5.0, (1.0, 2.0))] * 20
        )
    ), True
    yield "load: with some waiting that were put off", lambda: m.outputs(
        scheduler_stats=m.stats(3, 5, 0.75, num_skipped_waiting_reqs=6)
    ), True
    yield "load: with stages of a fetch", lambda: m.outputs(
        scheduler_stats=m.stats(3, 5, 0.75, num_kv_fetch_reqs_by_stage={"in_progress": 2})
    ), True
    yield "load: with the details of an iteration", lambda: m.outputs(
        scheduler_stats=m.stats(
            3, 5, 0.75, iteration_details=m.of_stats("SchedulerIterationDetails", 9, 1, 2, 3, 4, 1.5, is_dummy=True)
        )
    ), True


LATER = [None, {"x": [1, 2.5, "y"]}, [[]]]  # elements that a later engine may add


def length_cases(whole):
    """Yield (name, elements of the array) with other lengths than the engine's own
    arrays have. What was cut off takes its default."""
    for n in range(len(whole)):
        yield f"outputs of {n} elements", whole[:n]
    yield "outputs of three elements more", whole + LATER
    first, second = whole[1]
    for n in range(2, len(second)):
        yield f"an output of {n} elements", whole[:1] + [[first, second[:n]]] + whole[2:]
    yield "an output of three elements more", whole[:1] + [[first, second + LATER]] + whole[2:]
    yield "load of no fields", whole[:2] + [{}] + whole[3:]
    for key in whole[2]:
        if key in ("num_running_reqs", "num_waiting_reqs") or key.endswith("cache_usage"):
            yield f"load without {key}", whole[:2] + [{k: v for k, v in whole[2].items() if k != key}] + whole[3:]
    yield "load of more fields", whole[:2] + [{"a": LATER, **whole[2], "b": {"num_running_reqs": 9}}] + whole[3:]


def broken_cases(whole):
    """Yield (name, elements of the array, why it is refused, finished, what is not
    known) for changes to outputs that end "b" and "c". Where reason is empty the
    rest stands."""

    def at(index, value):
        return whole[:index] + [value] + whole[index + 1 :]

    def output(index, value):
        second = whole[1][1]
        return at(1, [whole[1][0], second[:index] + [value] + second[index + 1 :]])

    def stats(key, value):
        return at(2, {**whole[2], key: value})

    for value, reason in (
        (None, "nil"),
        ("1", "type"),
        (1.5, "not_integer"),
        (True, "type"),
        ([], "type"),
        (-1, "negative"),
        (2**64 - 1, "out_of_range"),
    ):
        yield f"engine_index {value!r}", at(0, value), reason, [], []
    for value in ("a", 7, {"a": 1}, True):
        yield f"outputs {value!r}", at(1, value), "type", [], []
    for value in (7, "a", {"request_id": "b"}):
        yield f"an output {value!r}", at(1, [whole[1][0], value]), "type", [], []
    yield "an output None", at(1, [whole[1][0], None]), "nil", [], []
    for n in (0, 1):
        yield f"an output of {n} elements", at(1, [whole[1][0], whole[1][1][:n]]), "too_short", [], []
    for value in (7, b"b", ["b"]):
        yield f"request_id {value!r}", output(0, value), "type", [], []
    yield "request_id None", output(0, None), "nil", [], []
    for value in (7, "a", {}):
        yield f"new_token_ids {value!r}", output(1, value), "type", [], []
    for value in ("stop", 0.5, False, [0]):
        yield f"finish_reason {value!r}", output(5, value), "type", [], []
    yield "finish_reason -1", output(5, -1), "", ["b", "c"], []  # not running, at any rate
    for value in ("b", 7, True, {"b": 1}):
        yield f"finished_requests {value!r}", at(5, value), "type", [], []
    yield "finished_requests of a number", at(5, ["c", 7]), "type", [], []
    yield "finished_requests of a None", at(5, ["c", None]), "nil", [], []
    for i, name in ((6, "wave_complete"), (7, "start_wave")):
        for value in ("1", 1.5, [1]):
            yield f"{name} {value!r}", at(i, value), "", ["b", "c"], [name]

    for value in (7, "a", [3, 5, 0.75], True):
        yield f"scheduler_stats {value!r}", at(2, value), "", ["b", "c"], ["load"]
    for key in ("num_running_reqs", "num_waiting_reqs"):
        for value in (-1, -(2**63), 2**64 - 1, 1.5, "3", None, True, [3]):
            yield f"{key} {value!r}", stats(key, value), "", ["b", "c"], ["load"]
    for value in (-0.5, -1, 1.0000000000000002, 75.0, 2, NAN, INF, -INF, "0.5", None, True, [0.5]):
        yield f"kv_cache_usage {value!r}", stats("kv_cache_usage", value), "", ["b", "c"], ["kv_usage"]


def in_order(ids):
    """Ids as they are listed, or sorted where it is the engine's set of them."""
    return sorted(ids) if isinstance(ids, (set, frozenset)) else list(ids)


def fields_of(m, o):
    """What the vectors say about outputs."""
    s = o.scheduler_stats
    return dict(
        engine_index=o.engine_index,
        outputs=[
            dict(
                request_id=x.request_id,
                new_token_ids=x.new_token_ids,
                finish_reason=None if x.finish_reason is None else int(x.finish_reason),
            )
            for x in o.outputs
        ],
        scheduler_stats=s
        and dict(
            num_running_reqs=s.num_running_reqs,
            num_waiting_reqs=s.num_waiting_reqs,
            kv_cache_usage=s.gpu_cache_usage if m.old_usage else s.kv_cache_usage,
        ),
        utility_output=o.utility_output is not None,
        finished_requests=None if o.finished_requests is None else in_order(o.finished_requests),
        wave_complete=o.wave_complete,
        start_wave=o.start_wave,
    )


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--vllm", type=pathlib.Path, required=True, help="folder with the unpacked vllm package")
    args.add_argument("--out", type=pathlib.Path, required=True, help="folder to write to")
    args.add_argument("--broken", action="store_true", help="write the outputs that are refused, too")
    args = args.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    logging.disable()

    root = args.vllm.resolve()
    engine = load_engine(root)
    m = Maker(engine)
    encoder = engine.v1_serial_utils.MsgpackEncoder()
    # What is on the wire, decoded with and without the engine's types.
    read = engine.v1_serial_utils.MsgpackDecoder(engine.v1_engine.EngineCoreOutputs).decode
    decode, encode = msgspec.msgpack.decode, msgspec.msgpack.encode

    vectors = []
    for name, make, canonical in outputs_cases(m):
        try:
            outputs = make()
        except Unknown:
            continue
        frames = [bytes(frame).hex() for frame in encoder.encode(outputs)]
        vectors.append(dict(name=name, frames=frames, canonical=canonical, fields=fields_of(m, outputs)))

    two = m.outputs(
        m.output("a", [7]),
        m.output("b", [8, 9], "LENGTH"),
        scheduler_stats=m.stats(3, 5, 0.75),
        finished_requests=["b", "c"],
        wave_complete=7,
        start_wave=8,
    )
    whole = decode(encoder.encode(two)[0])
    for name, elements in length_cases(whole):
        data = encode(elements)
        fields = fields_of(m, read(data))
        if stats := fields["scheduler_stats"]:  # the engine takes 0 for what is missing
            usage = elements[2].get("gpu_cache_usage", elements[2].get("kv_cache_usage"))
            fields["scheduler_stats"] = {k: elements[2].get(k) for k in stats} | dict(kv_cache_usage=usage)
        vectors.append(dict(name=name, frames=[data.hex()], canonical=False, fields=fields))
    engines.write(args.out, f"outputs-{version_of(root)}.json", vectors)

    if not args.broken:
        return
    vectors = []
    for name, elements, reason, finished, unknown in broken_cases(whole):
        vectors.append(dict(name=name, hex=encode(elements).hex(), reason=reason, finished=finished, unknown=unknown))
    engines.write(args.out, "broken.json", vectors)


if __name__ == "__main__":
    main()
