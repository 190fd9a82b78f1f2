"""Run the output thread of vLLM engine cores, as told over standard input.

    python run_vllm.py --vllm DIR

DIR holds an unpacked `vllm` package. What is loaded of it, and what stands in for
the rest, is in snapshot/vllm/testdata/generate.py. Of the engine core's process,
which is too heavy to load, the method that is its output thread is taken out: it
numbers what it sends, encodes it, and has the sockets.

One command per line, as JSON, and one answer per command, {"error": ...} if it
could not be done. The process ends with its standard input.

  {"op": "connect", "outputs": [ENDPOINT...], "coordinator": ENDPOINT?, "index": INDEX}
      starts the output thread of a rank, for a number of front ends
  {"op": "send", "index": INDEX, "client": CLIENT, "requests": [REQUEST...], ...}
      sends outputs to a front end, or to the coordinator where CLIENT is -1.
      Optional: "stats" {field: value}, "finished" [id...], "utility" [call,
      failure, result], "wave_complete", "start_wave"
  {"op": "die", "index": INDEX}
      sends what an engine core sends when it goes down, and waits for the thread

A REQUEST has id, ids, finish (the name of a reason, or null), logprobs (for how
many tokens, or 0).
"""

import argparse
import logging
import pathlib
import queue
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "snapshot/vllm/testdata"))
import generate
import engines

CORE = "vllm.v1.engine.core"
THREAD = {"process_output_sockets", "_send_msg_tracking_payload", "ENGINE_CORE_DEAD"}


class Rank:
    """The process of one rank, as far as its output thread can tell."""

    def __init__(self, process, outputs, coordinator, index):
        self.dead = process.ENGINE_CORE_DEAD
        self.queue = queue.Queue()
        core = process()
        core.output_queue = self.queue
        self.thread = threading.Thread(
            target=core.process_output_sockets, args=(outputs, coordinator, index), daemon=True
        )
        self.thread.start()


class Driver:
    def __init__(self, root):
        self.make = generate.Maker(generate.load_engine(root))
        self.process = engines.class_from(root, CORE, "EngineCoreProc", THREAD)
        self.ranks = {}

    def connect(self, outputs, index, coordinator=None):
        self.ranks[index] = Rank(self.process, outputs, coordinator, index)

    def send(self, index, client, requests=(), stats=None, finished=None, utility=None, **kwargs):
        m = self.make
        outputs = []
        for r in requests:
            logprobs = {"new_logprobs": m.logprobs(r["logprobs"])} if r["logprobs"] else {}
            outputs.append(m.output(r["id"], r["ids"], r["finish"], **logprobs))
        if stats is not None:
            kwargs["scheduler_stats"] = m.stats(**stats)
        if finished is not None:
            kwargs["finished_requests"] = set(finished)
        if utility is not None:
            kwargs["utility_output"] = m.utility(*utility)
        # What sends it is what numbers it.
        self.ranks[index].queue.put((client, m.outputs(*outputs, index=0, **kwargs)))

    def die(self, index):
        rank = self.ranks.pop(index)
        rank.queue.put(rank.dead)
        rank.thread.join(20)
        if rank.thread.is_alive():
            raise TimeoutError("the output thread goes on")


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--vllm", type=pathlib.Path, required=True)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    d = Driver(args.parse_args().vllm.resolve())
    engines.serve({op: getattr(d, op) for op in ("connect", "send", "die")})


if __name__ == "__main__":
    main()
