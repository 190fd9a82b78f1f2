"""Makes a tokenizer of a few hundred tokens, since a load generator wants one and
those of real models have to be downloaded.

    tokenizer.py FOLDER
"""

import random
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

WORDS = "a ship is loaded until the water meets her mark and no deeper".split()

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
pick = random.Random(1).choice
tokenizer.train_from_iterator(
    (" ".join(pick(WORDS) for _ in range(40)) for _ in range(200)),
    trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<s>", "</s>"],
        show_progress=False,
    ),
)
PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(sys.argv[1])
