# The model of a chargpt run, in PyTorch: from what `ration merge RUN -o model.safetensors` made. Prints the loss on the batch that
# comes after the saved step: what chargpt reports for the next step, before its update.
#   python load_in_pytorch.py model.safetensors [HEADS [BATCH [SEED [TEXT...]]]]      the flags of the run; by default chargpt's
import glob, os, sys
import torch
from safetensors import safe_open
from torch.nn.functional import cross_entropy, embedding, gelu, layer_norm, linear, scaled_dot_product_attention

with safe_open(sys.argv[1], "pt") as file:
    w, step = {name: file.get_tensor(name).float() for name in file.keys()}, int(file.metadata()["ration.step"])
heads, batch, seed = (int(given) for given in (sys.argv[2:5] + ["4", "16", "1"][len(sys.argv[2:5]):]))
licences = [path for path in sorted(glob.glob("/usr/share/common-licenses/*")) if not os.path.islink(path)]
text = b"".join(open(path, "rb").read() for path in sys.argv[5:] or licences)
token = {byte: number for number, byte in enumerate(sorted(set(text)))}
seq, width = w["wpe.weight"].shape
items = (len(text) - 1) // seq
epoch, first = divmod(step * batch, items)  # DistributedSampler's order, if no rank was padded and no epoch ends in the batch
order = torch.randperm(items, generator=torch.Generator().manual_seed(seed + epoch))[first:first + batch]
data = torch.tensor([[token[byte] for byte in text[i * seq:i * seq + seq + 1]] for i in order.tolist()])

def norm(x, name): return layer_norm(x, (width,), w[name + ".weight"], w[name + ".bias"], 1e-5)
def apply(x, name): return linear(x, w[name + ".weight"], w[name + ".bias"])

x = embedding(data[:, :-1], w["wte.weight"]) + w["wpe.weight"]
for k in range(sum(name.endswith("ln_1.bias") for name in w)):
    qkv = apply(norm(x, f"h.{k}.ln_1"), f"h.{k}.attn.c_attn").split(width, dim=2)
    q, key, value = (part.unflatten(2, (heads, -1)).transpose(1, 2) for part in qkv)
    attended = scaled_dot_product_attention(q, key, value, is_causal=True).transpose(1, 2).flatten(2)
    x = x + apply(attended, f"h.{k}.attn.c_proj")
    x = x + apply(gelu(apply(norm(x, f"h.{k}.ln_2"), f"h.{k}.mlp.c_fc"), approximate="tanh"), f"h.{k}.mlp.c_proj")
print(cross_entropy(linear(norm(x, "ln_f"), w["wte.weight"]).flatten(0, 1), data[:, 1:].flatten()).item())
