"""Names → models: what loads, and the one line that is said of what does not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub import constants
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2Model,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
)

from rationales.errors import RationalesError
from rationales.models import default as default_model
from rationales.models import hub as hub_module
from rationales.models import loading
from rationales.models.files import quietly
from rationales.models.listing import list_models
from rationales.models.loading import (
    DEFAULT_TRANSLATOR,
    load_model,
    model_path,
    packaged_translator,
)

WORDS = ["<unk>", "the", "cat", "sat", "on", "a", "mat", "and", "then", "it", "slept", "."]
NOWHERE = "http://127.0.0.1:9"


def tiny_config(**changes) -> LlamaConfig:
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": len(WORDS)}
    return LlamaConfig(**{**sizes, **heads, "bos_token_id": None, "eos_token_id": None, **changes})


def tiny_tokenizer(words=WORDS) -> PreTrainedTokenizerFast:
    backend = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


@pytest.fixture(scope="session")
def saved(tmp_path_factory) -> Path:
    """A whole model in a folder."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("saved")
    with quietly():
        LlamaForCausalLM(tiny_config()).save_pretrained(folder)
        tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path) -> Path:
    """A copy of the model, to be damaged."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


@pytest.fixture(autouse=True)
def hub_cache(tmp_path, monkeypatch) -> Path:
    """An empty cache of the hub, and a hub that refuses connections."""
    monkeypatch.setenv("RATIONALES_CACHE", str(tmp_path / "rationales"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "ENDPOINT", NOWHERE)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path / "hub"


def put_in_cache(cache: Path, name: str, source: Path, revision: str = "main") -> Path:
    """The folder in the hub's cache that now holds the files of ``source``."""
    repo = cache / f"models--{name.replace('/', '--')}"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / revision).write_text("abc")
    return Path(shutil.copytree(source, repo / "snapshots" / "abc"))


def complaint(name, **options) -> str:
    """The one line with which a model is refused."""
    with pytest.raises(RationalesError) as caught:
        load_model(str(name), **options)
    message = str(caught.value).replace(str(name), "IT")
    assert "\n" not in message
    assert len(message) < 250
    return message


def edit(folder: Path, **changes) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


def pickled(folder: Path) -> None:
    model = LlamaForCausalLM(tiny_config())
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


# What loads


def test_a_folder_loads_ready_to_score_and_in_silence(folder, capfd):
    loaded = load_model(str(folder))
    assert (loaded.name, loaded.folder) == (str(folder), folder)
    assert loaded.model.dtype == torch.float32
    assert not loaded.model.training
    assert not any(weight.requires_grad for weight in loaded.model.parameters())
    assert loaded.tokenizer("the cat")["input_ids"] == [1, 2]
    assert capfd.readouterr() == ("", "")
    with quietly():
        same = LlamaForCausalLM.from_pretrained(folder)
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(same(ids).logits, loaded.model(ids).logits)


def test_a_folder_that_is_called_like_the_packaged_model_is_itself(folder, monkeypatch):
    folder.rename(folder.parent / DEFAULT_TRANSLATOR)
    monkeypatch.chdir(folder.parent)
    loaded = load_model(DEFAULT_TRANSLATOR)
    assert loaded.folder == Path(DEFAULT_TRANSLATOR)
    assert loaded.folder.resolve() != packaged_translator()


@pytest.mark.parametrize("alias", [None, "default", " SmolLM2-135M-Instruct"])
def test_the_default_model_has_names(saved, monkeypatch, alias):
    monkeypatch.setattr(default_model, "get", lambda **_: saved)
    assert load_model(alias).name == default_model.DEFAULT_LABEL


def test_a_processor_that_would_kill_the_process_is_found_out(folder, monkeypatch):
    died = subprocess.CompletedProcess([], returncode=-4)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: died)
    with pytest.raises(RationalesError, match="use float32") as caught:
        load_model(str(folder), dtype="bfloat16")
    assert "\n" not in str(caught.value)


def test_tied_weights_are_not_missing(folder):
    with quietly():
        LlamaForCausalLM(tiny_config(tie_word_embeddings=True)).save_pretrained(folder)
    assert load_model(str(folder)).model.lm_head.weight is not None


def test_a_bare_model_with_tied_weights_loads(folder):
    config = GPT2Config(vocab_size=len(WORDS), n_embd=16, n_layer=1, n_head=2, n_positions=16)
    with quietly():
        GPT2Model(config).save_pretrained(folder)
    assert type(load_model(str(folder)).model).__name__ == "GPT2LMHeadModel"


def test_shards_load(folder):
    with quietly():
        LlamaForCausalLM(tiny_config()).save_pretrained(folder, max_shard_size="8KB")
    (folder / "model.safetensors").unlink(missing_ok=True)
    shards = sorted(folder.glob("model-*.safetensors"))
    assert len(shards) > 1
    load_model(str(folder))
    shards[1].unlink()
    assert f"IT has no {shards[1].name}: its weights are incomplete" in complaint(folder)


def test_pickles_load_only_when_allowed(folder):
    pickled(folder)
    assert "--allow-pickle" in complaint(folder)
    assert load_model(str(folder), allow_pickle=True).model.dtype == torch.float32


def test_dtype_and_device(folder, monkeypatch):
    with quietly():
        LlamaForCausalLM(tiny_config(dtype=torch.bfloat16)).bfloat16().save_pretrained(folder)
    assert load_model(str(folder), device="cpu").model.dtype == torch.float32
    monkeypatch.setattr(loading, "check_bfloat16", lambda: None)  # nothing is multiplied here
    assert load_model(str(folder), device="cpu", dtype="auto").model.dtype == torch.bfloat16
    assert load_model(str(folder), device="cpu", dtype="float16").model.dtype == torch.float16
    assert complaint(folder, dtype="int4") == (
        "dtype must be float32, bfloat16, float16 or auto, not 'int4'"
    )
    for device in ("gpu", "meta", "cuda:x", ""):
        assert "device must be cpu, cuda, mps" in complaint(folder, device=device)
    assert "cuda:99 is not available here" in complaint(folder, device="cuda:99")


def test_a_gguf_file_loads(tmp_path, capfd):
    import gguf

    file = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    config = tiny_config()
    fields = {
        "context_length": 32,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "head_count": config.num_attention_heads,
        "head_count_kv": config.num_key_value_heads,
        "layer_norm_rms_eps": 1e-6,
        "vocab_size": len(WORDS),
        "tokenizer_model": "gpt2",
        "tokenizer_pre": "smollm",
        **dict.fromkeys(("bos_token_id", "eos_token_id", "unk_token_id"), 0),
    }
    for field, value in fields.items():
        getattr(writer, f"add_{field}")(value)
    letters = ["<unk>", *"abcdefg", "1", "2", "12", "ab"]
    assert len(letters) == len(WORDS)
    writer.add_token_list(letters)
    writer.add_token_types([3] + [1] * (len(letters) - 1))
    writer.add_token_merges(["1 2", "a b"])
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k"}
    names |= {"self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output"}
    names |= {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    names |= {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    names |= {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    model = LlamaForCausalLM(config)
    for key, weight in model.state_dict().items():
        name = key.replace("model.layers.", "blk.")
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        writer.add_tensor(name, weight.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    loaded = load_model(str(file))
    assert loaded.folder is None
    assert loaded.model.dtype == torch.float32
    assert torch.equal(loaded.model.lm_head.weight, model.lm_head.weight)
    assert loaded.tokenizer.tokenize("ab12") == ["ab", "1", "2"]  # digits apart: pre is smollm
    assert capfd.readouterr() == ("", "")
    assert model_path(str(file)) == file


# What does not


def drop(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def drop_a_weight(folder):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def cut_the_weights(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def make_it_t5(folder):
    T5Config(d_model=8, num_layers=1).save_pretrained(folder)


def make_it_bert(folder):
    sizes = {"hidden_size": 8, "intermediate_size": 8, "vocab_size": 20}
    config = BertConfig(**sizes, num_hidden_layers=1, num_attention_heads=1)
    with quietly():
        BertForMaskedLM(config).save_pretrained(folder)


def give_it_another_tokenizer(folder):
    tiny_tokenizer([*WORDS, "more"]).save_pretrained(folder)


def ask_for_code(folder):
    edit(folder, model_type="own", auto_map={"AutoConfig": "own.Config"})


REFUSED = [
    (drop("config.json"), "IT has no config.json: give the folder"),
    (drop("model.safetensors"), "IT has no weights (model.safetensors): give the folder"),
    (drop("tokenizer.json"), "IT has no tokenizer files (tokenizer.json): save"),
    (
        write("model.safetensors", b"\xff" * 64),
        "the weights of IT cannot be loaded (Error while des",
    ),
    (write("model.safetensors", b""), "the weights of IT cannot be loaded (Error while deserial"),
    (cut_the_weights, "the weights of IT cannot be loaded (Error while deserializing header"),
    (
        write("config.json", b"{"),
        "the config.json of IT cannot be loaded (It looks like the config",
    ),
    (write("config.json", b"{}"), "the config.json of IT cannot be loaded (Unrecognized model in"),
    (write("config.json", b"[]"), "the config.json of IT cannot be loaded ("),
    (write("tokenizer.json", b"{"), "the tokenizer of IT cannot be loaded ("),
    (
        lambda f: edit(f, model_type="own"),
        "has model type `own` but Transformers does not recognize",
    ),
    (
        ask_for_code,
        "(it needs Python code of its own, which could do anything and is never run): fetch it",
    ),
    (
        make_it_t5,
        "IT is an encoder–decoder (t5), not a causal language model: `rationales translate`",
    ),
    (make_it_bert, "IT is a BertForMaskedLM, not a causal language model: use another model"),
    (lambda f: edit(f, model_type="vit", architectures=None), "IT is a vit, not a causal language"),
    (drop_a_weight, "the weights of IT lack model.norm.weight: they are incomplete, or of"),
    (lambda f: edit(f, num_hidden_layers=3), "the weights of IT lack model.layers.2."),
    (lambda f: edit(f, hidden_size=32), "the weights of IT have other sizes for lm_head.weight, "),
    (give_it_another_tokenizer, "the tokenizer of IT has 13 tokens and its model 12: put"),
    (pickled, "IT has only pickled weights (pytorch_model.bin), which can run code when read: if"),
]


@pytest.mark.parametrize(("damage", "said"), REFUSED, ids=[said[:40] for _, said in REFUSED])
def test_what_is_wrong_is_said_in_one_line(folder, capfd, damage, said):
    damage(folder)
    capfd.readouterr()
    assert said in complaint(folder)
    assert capfd.readouterr() == ("", "")


BAD_NAMES = {
    "there is no file or folder IT": ["./nothing", "~/nothing", "~no-such-user/model", "no.gguf"],
    "is empty": ["\t"],
    "is neither a folder nor a hub id": ["long" * 1000, "a\0b", "not an id!"],
    "IT is a file, but not a GGUF file": [__file__],
}


@pytest.mark.parametrize(
    ("name", "said"), [(name, said) for said, names in BAD_NAMES.items() for name in names]
)
def test_names_of_no_model(name, said):
    assert said in complaint(name)


def test_a_damaged_gguf_file(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF\x03")
    assert "IT cannot be loaded (" in complaint(tmp_path / "broken.gguf")
    said = "IT is a causal language model (GGUF), not an encoder–decoder: `rationales explain`"
    assert said in complaint(tmp_path / "broken.gguf", kind="seq2seq")


# The hub


@pytest.fixture
def hub(monkeypatch):
    """A hub on this machine: answers by name, each a status, a body and an error code."""
    answers: dict[str, tuple[int, dict, str]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body, code = answers[self.path.removeprefix("/api/models/")]
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            if code:
                self.send_header("X-Error-Code", code)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield answers
        huggingface_hub.close_session()
        server.shutdown()


def test_an_id_in_the_local_cache_loads_without_the_hub(hub_cache, saved):
    put_in_cache(hub_cache, "tiny/llama", saved)
    loaded = load_model("tiny/llama")
    assert (loaded.name, loaded.folder) == ("tiny/llama", model_path("tiny/llama"))
    assert model_path("tiny/llama").name == "abc"


def test_a_revision_is_looked_up_in_the_local_cache(hub_cache, saved):
    folder = put_in_cache(hub_cache, "tiny/llama", saved, "v1")
    for revision in ("v1", "abc"):  # a branch or a tag, and its commit
        assert load_model("tiny/llama", revision=revision).folder == folder
    assert "IT is not on this machine" in complaint("tiny/llama")
    assert list_models()[1].state == "ready (revision v1)"


@pytest.mark.parametrize("name", ["default", "FOLDER"])
def test_a_revision_is_for_hub_ids(folder, name):
    name = name.replace("FOLDER", str(folder))
    assert (
        complaint(name, revision="v1") == "revision is for hub ids, and IT is not one: leave it out"
    )


def test_a_hub_that_does_not_answer_is_not_waited_for(monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(hub_module, "HUB_SECONDS", 0.2)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: released.wait(20))
    assert "(TimeoutError)" in complaint("tiny/llama")
    released.set()


@pytest.mark.parametrize(
    ("offline", "said"),
    [(False, "the hub cannot be reached"), (True, "HF_HUB_OFFLINE is set: unset it")],
)
def test_without_a_hub_that_is_said(monkeypatch, offline, said):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    assert f"IT is not on this machine and {said}" in complaint("tiny/llama")


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (404, "RepoNotFound", "the hub has no public model IT: check the name, log in, or give"),
        (404, "RevisionNotFound", "IT has no revision 'v1': give a branch, a tag or a commit"),
        (403, "GatedRepo", "IT is gated: accept its terms on the hub"),
        (503, "", "the hub answered 503 for IT: try again later"),
    ],
)
def test_what_the_hub_refuses_is_named(hub, status, code, said):
    hub["tiny/llama/revision/v1"] = (status, {}, code)
    assert said in complaint("tiny/llama", revision="v1")


def files(*names):
    return {"id": "tiny/llama", "siblings": [{"rfilename": name} for name in names]}


def test_only_the_files_that_are_needed_are_fetched(hub, saved, monkeypatch):
    wanted = [path.name for path in saved.iterdir()]
    spare = ["pytorch_model.bin", "onnx/config.json", "model.fp16.safetensors", "run.py"]
    hub["tiny/llama/revision/v1"] = (200, files(*wanted, *spare), "")
    asked = []

    def snapshot_download(name, revision, allow_patterns):
        asked.extend([revision, *sorted(allow_patterns)])
        return str(saved)

    monkeypatch.setattr(
        huggingface_hub, "hf_hub_download", lambda _, file, revision: str(saved / file)
    )
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    loaded = load_model("tiny/llama", revision="v1")
    assert (loaded.name, loaded.folder) == ("tiny/llama", saved)
    assert asked == ["v1", *sorted(wanted)]


def test_weights_are_not_fetched_in_vain(hub, folder, monkeypatch):
    monkeypatch.setattr(
        huggingface_hub, "hf_hub_download", lambda _, file, revision: str(folder / file)
    )
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("fetched")
    )
    hub["tiny/llama"] = (200, files("config.json", "pytorch_model.bin", "tokenizer.json"), "")
    assert "IT has only pickled weights" in complaint("tiny/llama")
    make_it_t5(folder)
    assert "IT is an encoder–decoder" in complaint("tiny/llama")


def test_a_disk_that_is_full_is_not_blamed_on_the_hub(hub, saved, monkeypatch):
    def fill(*_, **__):
        raise OSError(28, "No space left on device")

    hub["tiny/llama"] = (200, files("config.json"), "")
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fill)
    assert "IT cannot be stored (No space left on device)" in complaint("tiny/llama")


def test_a_cached_copy_that_is_not_whole_is_named(hub_cache, saved, folder):
    (put_in_cache(hub_cache, "tiny/part", saved) / "model.safetensors").unlink()
    assert "the cached copy of IT has no weights" in complaint("tiny/part")
    pickled(folder)
    put_in_cache(hub_cache, "tiny/pickled", folder)
    assert "--allow-pickle" in complaint("tiny/pickled")
    assert load_model("tiny/pickled", allow_pickle=True).name == "tiny/pickled"


# What is there


def test_the_list_of_models(hub_cache, saved, folder):
    assert [entry.name for entry in list_models()] == ["smollm2-135m-instruct"]
    path = put_in_cache(hub_cache, "tiny/llama", saved)
    pickled(folder)
    put_in_cache(hub_cache, "Another/one", folder)
    make_it_t5(folder)
    put_in_cache(hub_cache, "tiny/t5", folder)
    (folder / "config.json").write_text("{")
    put_in_cache(hub_cache, "tiny/broken", folder)
    _, another, llama = list_models()
    assert (another.name, llama.name) == ("Another/one", "tiny/llama")
    assert "--allow-pickle" in another.state
    assert (llama.state, llama.path, llama.label) == ("ready", path, "LlamaForCausalLM")
    assert llama.size_bytes > 0


def test_the_state_of_the_default_model(tmp_path, saved, monkeypatch):
    monkeypatch.setattr(default_model, "installed_gguf", lambda: None)
    assert list_models()[0].state == "not here: run `rationales model get`"
    with pytest.raises(RationalesError, match="run `rationales model get`"):
        model_path("default")
    monkeypatch.setattr(default_model, "installed_gguf", lambda: saved / "config.json")
    assert list_models()[0].state == "converted when first used"
    monkeypatch.setattr(default_model, "find", lambda: saved)
    assert list_models()[0].state == "ready"
    assert model_path() == list_models()[0].path == saved


def test_the_path_of_a_model(saved):
    assert model_path(str(saved)) == saved
    with pytest.raises(RationalesError, match="tiny/llama is not on this machine"):
        model_path("tiny/llama")


def test_nothing_heavy_is_imported_with_the_module():
    code = "import rationales.models, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
