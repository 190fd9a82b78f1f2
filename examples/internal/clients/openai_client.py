"""Talks to an OpenAI-compatible server the way applications do.

    openai_client.py BASE_URL

Prints one JSON object of what came back. Any exception is a failure.
"""

import asyncio
import json
import sys

import openai

WORDS = 12
SAY = [{"role": "user", "content": "Tell me of the ship and its mark. " * 20}]


def blocking(base_url):
    with openai.OpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        model = client.models.list().data[0].id
        whole = client.chat.completions.create(model=model, messages=SAY, max_tokens=WORDS)
        raw = client.chat.completions.with_raw_response.create(model=model, messages=SAY, max_tokens=1)
        pieces, usage = [], None
        for chunk in client.chat.completions.create(
            model=model, messages=SAY, max_completion_tokens=WORDS, stream=True, stream_options={"include_usage": True}
        ):
            pieces += [c.delta.content for c in chunk.choices if c.delta.content]
            usage = chunk.usage or usage
        text = client.completions.create(model=model, prompt="hello", max_tokens=WORDS)
        streamed = client.completions.create(model=model, prompt="hello", max_tokens=WORDS, stream=True)
        refused = None
        try:
            client.chat.completions.create(model=model, messages="not a list")
        except openai.BadRequestError as e:
            refused = e.status_code
        return {
            "model": model,
            "chat": whole.choices[0].message.content,
            "chat_tokens": whole.usage.completion_tokens,
            "chat_stream": "".join(pieces),
            "chat_stream_tokens": usage.completion_tokens,
            "completion_tokens": text.usage.completion_tokens,
            "completion_stream": "".join(c.choices[0].text for c in streamed if c.choices),
            "completion": text.choices[0].text,
            "worker": raw.headers.get("x-plimsoll-worker"),
            "refused": refused,
        }


async def at_once(base_url, n):
    """n requests at once, every second one streamed, and one that is given up."""
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
        model = (await client.models.list()).data[0].id

        async def one(i):
            if i % 2 == 0:
                whole = await client.chat.completions.create(model=model, messages=SAY, max_tokens=WORDS)
                return whole.usage.completion_tokens
            stream = await client.chat.completions.create(model=model, messages=SAY, max_tokens=WORDS, stream=True)
            return sum([1 async for chunk in stream if chunk.choices and chunk.choices[0].delta.content])

        async def give_up():
            stream = await client.chat.completions.create(model=model, messages=SAY, max_tokens=100000, stream=True)
            async for _ in stream:
                break
            await stream.close()

        answers = await asyncio.gather(give_up(), *(one(i) for i in range(n)))
        return answers[1:]


if __name__ == "__main__":
    base = sys.argv[1] + "/v1"
    said = blocking(base)
    said["at_once"] = asyncio.run(at_once(base, 64))
    json.dump(said, sys.stdout)
