"""Run the transport of a TokenSpeed engine, as told over standard input.

    python run_tokenspeed.py --tokenspeed DIR

DIR holds an unpacked `tokenspeed` package. What is loaded of it, and what stands
in for the rest, is in tokenspeed/testdata/generate.py. The scheduler is the one
who gives the commands: one per line, as JSON, and one answer per command,
{"error": ...} if it could not be done. The process ends with its standard input.

  {"op": "connect", "endpoint": ENDPOINT, "index": INDEX, "ranks": N}
      connects a rank to a front end, handshake and all; -> {}
  {"op": "send", "index": INDEX, "requests": [REQUEST...], "load": [int * 4]?}
      sends a batch, after the load was set, where one is given
  {"op": "control", "index": INDEX}
      sends what is no batch, which the transport drops
  {"op": "die", "index": INDEX}
      sends what an engine sends when it goes down, and closes the sockets
  {"op": "receive", "index": INDEX}
      waits for a message of the front end; -> {"received": [OBJECT...]}
  {"op": "recode", "hex": BYTES}
      decodes a batch with the engine's decoder, and encodes what came of it;
      -> {"hex": BYTES, "fields": {field: value}}

A REQUEST has rid, ids, finish (what kind of end, or null), prompt, completion,
cached, logprobs and logprob_ids.
"""

import argparse
import logging
import pathlib
import sys

import msgspec
import zmq

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tokenspeed/testdata"))
import generate
import engines

VOCABULARY = 1 << 17
PATIENCE = 20_000  # ms, for a message of the front end


class Driver:
    def __init__(self, engine):
        self.engine, self.context = engine, zmq.Context()
        self.context.setsockopt(zmq.LINGER, 2000)  # what was sent last goes out before the process ends
        self.inputs, self.outputs = {}, {}
        t = engine.request_types
        self.finishes = {
            "stop_token": lambda: t.FINISH_MATCHED_TOKEN(2),
            "stop_string": lambda: t.FINISH_MATCHED_STR("</s>"),
            "length": lambda: t.FINISH_LENGTH(8),
            "abort": lambda: t.FINISH_ABORT("gone"),
        }

    def connect(self, endpoint, index, ranks):
        ready = self.engine.zmq_wire.WireEngineCoreReadyResponse(
            max_model_len=4096,
            num_gpu_blocks=400,
            prefix_granularity=64,
            vllm_version=f"tokenspeed-{self.engine.version.__version__}",
            world_size=ranks,
            data_parallel_size=ranks,
            data_parallel_rank=len(self.outputs),
            instance_id="conformance",
        )
        self.inputs[index], self.outputs[index] = self.engine.zmq_msgpack.connect_msgpack_engine(
            self.context,
            endpoint,
            index,
            ready,
            VOCABULARY,
            enable_output_logprobs=True,
            supports_prompt_logprobs=False,
        )

    def send(self, index, requests, load=None):
        if load is not None:
            self.outputs[index].set_load_snapshot(*load)
        rows = []
        for r in requests:
            finish = r["finish"] and self.finishes[r["finish"]]()
            rows.append(generate.request(**{**r, "finish": finish}))
        self.outputs[index].send_pyobj(generate.full_batch(self.engine, rows))

    def control(self, index):
        self.outputs[index].send_pyobj(self.engine.io_struct.GetLoadReqOutput(dp_rank=index))

    def die(self, index):
        self.outputs[index].send_engine_dead()
        self.outputs.pop(index).close()
        self.inputs.pop(index).close()

    def receive(self, index):
        socket = self.inputs[index]
        if not socket._socket.poll(PATIENCE):
            raise TimeoutError("nothing was received")
        received = [socket.recv_pyobj()]
        try:
            while True:
                received.append(socket.recv_pyobj(zmq.NOBLOCK))
        except zmq.Again:
            pass
        return {"received": [named(o) for o in received]}

    def recode(self, hex):
        struct = self.engine.io_struct.BatchTokenIDOutSlim
        batch = self.engine.io_struct.MsgpackDecoder(struct).decode(bytes.fromhex(hex))
        (frame,) = self.engine.io_struct.MsgpackEncoder().encode(batch)
        return {"hex": frame.hex(), "fields": named(batch)}


def named(value):
    """A struct's fields by their names, its type among them."""
    if isinstance(value, msgspec.Struct):
        fields = {f: named(getattr(value, f)) for f in value.__struct_fields__}
        return {"type": type(value).__name__, **fields}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return value


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--tokenspeed", type=pathlib.Path, required=True)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    d = Driver(generate.load_engine(args.parse_args().tokenspeed.resolve()))
    engines.serve({op: getattr(d, op) for op in ("connect", "send", "control", "die", "receive", "recode")})


if __name__ == "__main__":
    main()
