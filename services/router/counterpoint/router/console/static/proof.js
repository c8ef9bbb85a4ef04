// Audit proofs, checked in the browser: the leaves of a task are in the signed log (RFC 6962 tree, signed note, Ed25519).

import { get } from "./api.js";

/** Thrown for a proof that does not hold. */
export class BrokenProof extends Error {}

/**
 * Return what the proofs of a task show: `{leaves, erased, size, key, signature}`; `signature` is `valid`, or `unchecked`
 * where the browser has no Ed25519. Throws `ApiError` and `BrokenProof`.
 */
export async function provenTask(taskId, signal) {
  const leaves = [];
  let page;
  let after = 0;
  do {
    page = await get(`/v1/audit/proofs/${encodeURIComponent(taskId)}`, { after, limit: 200 }, { signal });
    const { signature, size, root } = await checkpoint(page.checkpoint, page.key);
    for (const leaf of page.leaves) await checkLeaf(leaf, size, root);
    leaves.push(...page.leaves);
    after = page.next ?? null;
    page = { ...page, signature, size };
  } while (after !== null);
  return { leaves: leaves.length, erased: leaves.filter(({ body }) => body === null).length, size: page.size, key: page.key, signature: page.signature };
}

/** Whether the browser offers the functions; they are missing on pages without TLS, other than on the own machine. */
export const canProve = () => Boolean(globalThis.crypto?.subtle);

/** Return size and root of a signed note, and whether its signature was checked. Throws `BrokenProof`. */
export async function checkpoint(note, key) {
  const [name, digest, ...rest] = key.split("+");
  const encoded = rest.join("+");
  const publicKey = fromBase64(encoded);
  const own = hex(await sha256(join(utf8(`${name}\n`), publicKey))).slice(0, 8);
  if (own !== digest || publicKey[0] !== 1) throw new BrokenProof("the key is no Ed25519 key of this log");
  const [text, signatures = ""] = note.split("\n\n");
  const [origin, size, root] = text.split("\n");
  if (origin !== name || !/^\d+$/.test(size ?? "")) throw new BrokenProof("the note is no checkpoint of this log");
  const line = signatures.split("\n").find((each) => each.startsWith(`\u2014 ${name} `));
  if (!line) throw new BrokenProof("the checkpoint is not signed by this key");
  const signed = fromBase64(line.slice(`\u2014 ${name} `.length));
  if (hex(signed.slice(0, 4)) !== digest) throw new BrokenProof("the checkpoint is signed by another key");
  return { size: Number(size), root: fromBase64(root), signature: await verify(publicKey.slice(1), signed.slice(4), utf8(`${text}\n`)) };
}

/** Check that a leaf is what its hash says and in the tree. Throws `BrokenProof`. */
export async function checkLeaf(leaf, size, root) {
  const stated = fromHex(leaf.leaf);
  if (leaf.body !== null && leaf.body !== undefined) {
    const content = await sha256(join(fromHex(leaf.salt), fromHex(leaf.previous ?? ""), utf8(leaf.body)));
    if (hex(content) !== leaf.leaf) throw new BrokenProof(`leaf ${leaf.index + 1} is not what its hash says`);
  }
  let node = await sha256(join(Uint8Array.of(0), stated));
  let [first, last] = [leaf.index, size - 1];
  for (const step of leaf.path) {
    if (last === 0) throw new BrokenProof(`the path of leaf ${leaf.index + 1} is too long`);
    const other = fromHex(step);
    if (first % 2 === 1 || first === last) {
      node = await sha256(join(Uint8Array.of(1), other, node));
      while (first % 2 === 0 && first !== 0) [first, last] = [Math.floor(first / 2), Math.floor(last / 2)];
    } else {
      node = await sha256(join(Uint8Array.of(1), node, other));
    }
    [first, last] = [Math.floor(first / 2), Math.floor(last / 2)];
  }
  if (last !== 0 || hex(node) !== hex(root)) throw new BrokenProof(`leaf ${leaf.index + 1} is not in the signed log`);
}

async function verify(publicKey, signature, text) {
  let key;
  try {
    key = await crypto.subtle.importKey("raw", publicKey, { name: "Ed25519" }, false, ["verify"]);
  } catch {
    return "unchecked";
  }
  if (await crypto.subtle.verify({ name: "Ed25519" }, key, signature, text)) return "valid";
  throw new BrokenProof("the signature of the checkpoint is wrong");
}

const utf8 = (text) => new TextEncoder().encode(text);
const hex = (raw) => [...raw].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
const fromBase64 = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
const sha256 = async (raw) => new Uint8Array(await crypto.subtle.digest("SHA-256", raw));

function join(...parts) {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
