#!/usr/bin/env python3
"""Write the golden vectors of package tokenspeed with the engine's own code.

    pip install msgspec numpy pyzmq
    python generate.py --tokenspeed DIR --out DIR

--tokenspeed is the folder that holds an unpacked `tokenspeed` package (a wheel,
say) of a version that has the msgpack transport; nothing of it is installed.
The modules that make the wire are loaded from their files as they are. Whatever
else they import of the engine, and torch, is replaced by stand-ins: no tensor
is on this wire.

Each batch goes the engine's whole way: its full output struct, the slim one that
its socket makes of it, its encoder, and a socket that keeps the frames. What the
vectors say about a batch is what the engine's own decoder reads back.

The output depends on nothing but the code that was loaded, so that running this
again shows whether the wire has changed.
"""

import argparse
import importlib
import logging
import pathlib
import sys
import types

import msgspec
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "internal/conformance"))
import engines

ENGINE = "tokenspeed.runtime.engine"
LOADED = (  # as they are; everything else of the engine is a stand-in
    f"{ENGINE}.io_struct",
    f"{ENGINE}.logprobs",
    f"{ENGINE}.request_types",
    f"{ENGINE}.zmq_msgpack",
    f"{ENGINE}.zmq_wire",
    "tokenspeed.runtime.multimodal.inputs",
    "tokenspeed.runtime.multimodal.shm_transport",
    "tokenspeed.runtime.sampling.sampling_params",
    "tokenspeed.version",
)


class Switches:
    """The engine's environment variables, none of which is set."""

    def __getattr__(self, name):
        return types.SimpleNamespace(get=lambda: False)


def load_engine(root):
    """Return the engine's modules under the last parts of their names."""

    def prepare():
        importlib.import_module("tokenspeed.runtime.utils.env").envs = Switches()

    modules = engines.load(root, LOADED, ("tokenspeed", "torch"), prepare)
    return types.SimpleNamespace(**{m.__name__.rpartition(".")[2]: m for m in modules})


def request(rid, ids=(), finish=None, prompt=0, completion=0, cached=0, logprobs=(), logprob_ids=()):
    """One request's row of a batch. logprobs may be None for all of a batch:
    the engine may have no such column."""
    return types.SimpleNamespace(
        rid=rid,
        ids=list(ids),
        finish=finish.to_json() if hasattr(finish, "to_json") else finish,
        prompt=prompt,
        completion=completion,
        cached=cached,
        logprobs=logprobs if logprobs is None else list(logprobs),
        logprob_ids=logprob_ids if logprob_ids is None else list(logprob_ids),
    )


def full_batch(engine, requests):
    """The engine's output struct, of which its socket takes a part."""

    def column(name):
        values = [getattr(r, name) for r in requests]
        return None if values and values[0] is None else values

    return engine.io_struct.BatchTokenIDOut(
        rids=column("rid"),
        finished_reasons=[r.finish for r in requests],
        output_ids=column("ids"),
        prompt_tokens=column("prompt"),
        completion_tokens=column("completion"),
        cached_tokens=column("cached"),
        output_token_logprobs_val=column("logprobs"),
        output_token_logprobs_idx=column("logprob_ids"),
        generated_time=0.0,
        **dict.fromkeys(
            (
                "decoded_texts decode_ids read_offsets output_multi_ids skip_special_tokens "
                "spaces_between_special_tokens no_stop_trim spec_verify_ct input_token_logprobs_val "
                "input_token_logprobs_idx input_top_logprobs_val input_top_logprobs_idx output_top_logprobs_val "
                "output_top_logprobs_idx input_token_ids_logprobs_val input_token_ids_logprobs_idx "
                "output_token_ids_logprobs_val output_token_ids_logprobs_idx output_hidden_states "
                "batch_accept_draft_tokens output_extra_infos"
            ).split(),
            [],
        ),
    )


def frames_of(engine, requests, index=0, load=None):
    """The frames in which the engine sends a batch."""
    socket = engines.KeepingSocket()
    sender = engine.zmq_msgpack.MsgpackSendSocket(socket, engine_index=index)
    if load is not None:
        sender.set_load_snapshot(*load)
    sender.send_pyobj(full_batch(engine, requests))
    return socket.sent[0]


BOUNDARIES = (1, 127, 128, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1)
NAN, INF = float("nan"), float("inf")
LOAD = (2, 5, 100, 400)
ALL = 14  # elements of what the engine sends today


def batch_cases(engine):
    """Yield (name, requests, engine index, load, elements, canonical). elements
    cuts the array to what older senders wrote. Canonical means that what is worth
    keeping of it encodes to the same bytes again: every value has the type that
    its field declares, which the encoder does not enforce, and nothing is left
    over."""
    t = engine.request_types
    vec = request("vec-1", [10, 11], t.FINISH_LENGTH(2), 3, 2, 1, [-0.5, -0.25], [10, 11])
    running = request("a", [10], None, 3, 1, 0)
    stopped = request("b", [20], t.FINISH_MATCHED_TOKEN(2), 4, 1, 2)

    yield "one finished request with logprobs", [vec], 1, LOAD, ALL, True
    yield "one running request", [running], 0, LOAD, ALL, True
    yield "one running and one finished", [running, stopped], 1, LOAD, ALL, True
    yield "no requests", [], 3, LOAD, ALL, True
    yield "no requests, no load", [], 0, None, ALL, True

    yield "every way to finish", [
        request("running", [1]),
        request("matched token", [2], t.FINISH_MATCHED_TOKEN(2)),
        request("matched tokens", [2, 3], t.FINISH_MATCHED_TOKEN([2, 3])),
        request("matched string", [4], t.FINISH_MATCHED_STR("\n\n")),
        request("length", [5], t.FINISH_LENGTH(1)),
        request("abort", [], t.FINISH_ABORT("client went away")),
    ], 0, LOAD, ALL, True
    yield "ways to finish that are not known yet", [
        request("other", [1], {"type": "content_filter"}),
        request("long", [2], {"type": "r" * 300}),
        request("upper case", [3], {"type": "STOP"}),
        request("a string", [4], "repetition"),
    ], 0, LOAD, ALL, True
    yield "finished without a type, which is still running to the wire", [
        request("a", [1], {"message": "x"})
    ], 0, LOAD, ALL, True

    for name, rid in (
        ("of no bytes", ""),
        ("of 31 bytes", "r" * 31),
        ("of 32 bytes", "r" * 32),
        ("of 255 bytes", "r" * 255),
        ("of 256 bytes", "r" * 256),
        ("in Unicode", "anfrage-\u00e9\u4e2d\U0001f6a2"),
        ("in Unicode of 32 bytes", "\u00e9" * 16),
        ("with a zero byte", "a\0b"),
        ("like the tag", "BatchTokenIDOutSlim"),
        ("like the message of death", "ENGINE_CORE_DEAD"),
    ):
        yield f"request id {name}", [request(rid, [1], t.FINISH_LENGTH(1), 1, 1)], 0, LOAD, ALL, True
    yield "the same request id twice", [request("a", [1]), request("a", [2], t.FINISH_LENGTH(2))], 0, LOAD, ALL, True

    for n in BOUNDARIES:
        yield f"counts and ids {n}", [request("a", [n], None, n, n, n, [-1.0], [n])], 0, LOAD, ALL, True
    for n in (0, 1, 127, 128, 255, 256, 65535):
        yield f"engine index {n}", [running], n, LOAD, ALL, True
    for n in (15, 16, 300):
        ids = list(range(n))
        yield f"{n} ids of one request", [request("a", ids, None, 1, n, 0, [-0.5] * n, ids)], 0, LOAD, ALL, True
        yield f"{n} requests", [
            request(f"req-{i}", [i], t.FINISH_LENGTH(1) if i % 4 == 3 else None, i, 1, i // 2) for i in range(n)
        ], 1, (n, 7, 1000, 4000), ALL, True
    yield "no new ids", [request("a", [], t.FINISH_ABORT(), 3, 0, 0)], 0, LOAD, ALL, True
    yield "logprobs of some", [vec, running, request("c", [7], None, 1, 1, 0, [-0.0], [7])], 0, LOAD, ALL, True
    yield "logprobs switched off", [
        request("a", [1], logprobs=None, logprob_ids=None),
        request("b", [2]),
    ], 0, LOAD, ALL, True
    yield "extreme logprobs", [
        request(
            "a", range(8), None, 1, 8, 0, [0.0, -0.0, -5e-324, -0.1, -1.7976931348623157e308, 1e-9, -INF, NAN], range(8)
        )
    ], 0, LOAD, ALL, True
    yield "logprobs out of an array", [
        request("a", [1, 2], None, 1, 2, 0, numpy.array([-0.5, -0.1], dtype="f4"), numpy.array([1, 2]))
    ], 0, LOAD, ALL, True

    for name, load in (
        ("no snapshot", (0, 0, 0, 0)),
        ("no snapshot, counts all the same", (3, 4, 5, 0)),
        ("idle", (0, 0, 0, 400)),
        ("all pages in use", (9, 0, 400, 400)),
        ("one page", (1, 0, 1, 1)),
        *((f"all {n}", (n, n, n, n)) for n in BOUNDARIES),
    ):
        # Without a snapshot the counts mean nothing.
        canonical = any(load) == (load[3] > 0)
        yield f"load: {name}", [running, stopped], 2, load, ALL, canonical

    for n in (9, 10):
        yield f"{n} elements", [vec], 1, LOAD, n, True
        yield f"{n} elements, no requests", [], 1, LOAD, n, True
    for n in (11, 12, 13):
        yield f"{n} elements, which no sender writes", [running, stopped], 1, LOAD, n, False
    yield "15 elements", [running, stopped], 1, LOAD, 15, False
    yield "17 elements", [running, stopped], 1, LOAD, 17, False

    yield "logprobs that are integers", [request("a", [1, 2], None, 1, 2, 0, [0, -3], [1, 2])], 0, LOAD, ALL, False


LATER = [{"spec": [1, 2.5, None]}, None, "x" * 40]  # elements that a later sender may add


def broken_cases(engine):
    """Yield (name, elements of the array, why it is refused, skipped, finished,
    load refused). skipped: it is in a column that says nothing about load or who
    has finished, so that who skips those need not notice. finished: the requests
    that it ends all the same."""
    whole = msgspec.msgpack.decode(
        frames_of(
            engine,
            [
                request("a", [10], None, 3, 1, 0),
                request("b", [20, 21], engine.request_types.FINISH_LENGTH(2), 4, 2, 2, [-0.5, -0.25], [20, 21]),
            ],
            1,
            LOAD,
        )[0]
    )

    def at(index, value):
        return whole[:index] + [value] + whole[index + 1 :]

    for n in range(9):
        yield f"{n} elements", whole[:n], "too_short", False, [], False
    tags = "BatchTokenIDOut", "BatchStrOut", "", "batchtokenidoutslim", "BatchTokenIDOutSlim2"
    for tag in (*tags, 0, None, ["BatchTokenIDOutSlim"]):
        yield f"tag {tag!r}", at(0, tag), "tag", False, [], False

    names = engine.fields
    for i in range(1, 9):
        name, column = names[i - 1], whole[i]
        # Who has finished stands in columns 1 and 3 alone.
        finished = ["b"] if i not in (1, 3) else []
        yield f"{name} one short", at(i, column[:1]), "ragged", False, finished, False
        yield f"{name} one over", at(i, column + column[:1]), "ragged", False, finished, False
        yield f"{name} empty", at(i, []), "ragged", False, finished, False
        yield f"{name} None", at(i, None), "nil", False, [], False
        yield f"{name} a number", at(i, 7), "type", False, [], False
        yield f"{name} a map", at(i, {"a": 1}), "type", False, [], False
        skipped = i not in (1, 3)
        yield f"{name} of a None", at(i, [column[0], None]), "nil", skipped, [], False
        for value in (True, {"a": 1}, 1.5):
            reason = "not_integer" if value == 1.5 and i in (4, 5, 6) else "type"
            yield f"{name} of a {type(value).__name__}", at(i, [column[0], value]), reason, skipped, [], False
        if i in (4, 5, 6):
            for value in (-1, -33, -(2**31), -(2**63)):
                yield f"{name} of {value}", at(i, [column[0], value]), "negative", skipped, [], False
            yield f"{name} of {2**64 - 1}", at(i, [column[0], 2**64 - 1]), "out_of_range", skipped, [], False
        if i in (2, 7, 8):
            yield f"{name} of a row with a None", at(i, [column[0], [None]]), "nil", skipped, [], False
            yield f"{name} of a row with a string", at(i, [column[0], ["1"]]), "type", skipped, [], False

    for value, reason in (
        (None, "nil"),
        ("1", "type"),
        (1.5, "not_integer"),
        (True, "type"),
        (-1, "negative"),
        (2**64 - 1, "out_of_range"),
    ):
        yield f"engine_index {value!r}", at(9, value), reason, False, [], False
    for i in range(10, 14):
        for value in (None, "1", 1.5, True, -1, -(2**63), 2**64 - 1):
            yield f"{names[i - 1]} {value!r}", at(i, value), "", False, ["b"], True
    yield "one page more in use than there are", at(12, whole[13] + 1), "", False, ["b"], True
    whole[12] = whole[13] + 1
    yield "ragged with a broken load", at(2, whole[2][:1]), "ragged", False, ["b"], True


def message_cases(engine):
    """Yield (name, frames, whether the engine has died)."""
    batch = [request("a", [10], engine.request_types.FINISH_LENGTH(1), 3, 1, 0)]
    yield "a batch", frames_of(engine, batch, 1, LOAD), False
    # The encoder moves an array of 256 bytes or more to a frame of its own. The
    # engine sends lists; this is the only way to more than one frame.
    batch[0].logprobs = numpy.full(64, -0.5)
    yield "a batch with an array in a frame of its own", frames_of(engine, batch, 1, LOAD), False
    socket = engines.KeepingSocket()
    engine.zmq_msgpack.MsgpackSendSocket(socket).send_engine_dead()
    yield "the engine has died", socket.sent[0], True


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument(
        "--tokenspeed", type=pathlib.Path, required=True, help="folder with the unpacked tokenspeed package"
    )
    args.add_argument("--out", type=pathlib.Path, required=True, help="folder to write to")
    args = args.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    logging.disable()

    engine = load_engine(args.tokenspeed.resolve())
    slim = engine.io_struct.BatchTokenIDOutSlim
    engine.fields = slim.__struct_fields__
    encode = msgspec.msgpack.Encoder().encode
    read = engine.io_struct.MsgpackDecoder(slim).decode
    if len(engine.fields) + 1 != ALL:
        raise SystemExit(f"the engine sends {len(engine.fields) + 1} elements: {engine.fields}")

    vectors = []
    for name, requests, index, load, elements, canonical in batch_cases(engine):
        data = frames_of(engine, requests, index, load)[0]
        if elements != ALL:
            data = encode((msgspec.msgpack.decode(data) + LATER)[:elements])
        try:
            fields = read(data)
        except msgspec.ValidationError as e:
            raise SystemExit(f"{name}: the engine's decoder refuses it: {e}")
        vectors.append(
            dict(
                name=name,
                hex=data.hex(),
                canonical=canonical,
                elements=elements,
                fields={f: getattr(fields, f) for f in engine.fields},
            )
        )
    engines.write(args.out, "batches.json", vectors)

    vectors = []
    for name, elements, reason, skipped, finished, load_refused in broken_cases(engine):
        vectors.append(
            dict(
                name=name,
                hex=encode(elements).hex(),
                reason=reason,
                skipped=skipped,
                finished=finished,
                load_refused=load_refused,
            )
        )
    engines.write(args.out, "broken.json", vectors)

    vectors = []
    for name, frames, dead in message_cases(engine):
        vectors.append(dict(name=name, frames=[frame.hex() for frame in frames], dead=dead))
    engines.write(args.out, "messages.json", vectors)


if __name__ == "__main__":
    main()
