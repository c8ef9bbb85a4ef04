// Lists that change: only items with another content are rendered again, and the focus stays where it was.

/**
 * Return `update(items)` for a container. `keyOf(item)` identifies an item, `render(item)` returns its element.
 * In an item that is rendered again the focus goes to the element with the same `data-focus`.
 */
export function keyed(container, keyOf, render) {
  let shown = new Map();
  return (items) => {
    const focused = container.contains(document.activeElement) ? document.activeElement : null;
    const name = focused?.dataset.focus;
    const home = focused ? [...shown].find(([, { node }]) => node.contains(focused))?.[0] : undefined;
    const next = new Map();
    let at = container.firstElementChild;
    for (const item of items) {
      const key = keyOf(item);
      const content = JSON.stringify(item);
      const old = shown.get(key);
      const node = old?.content === content ? old.node : render(item);
      next.set(key, { content, node });
      if (node === at) at = at.nextElementSibling;
      else container.insertBefore(node, at);
    }
    for (const [key, { node }] of shown) if (next.get(key)?.node !== node) node.remove();
    shown = next;
    if (focused && document.activeElement !== focused) {
      const again = focused.isConnected ? focused : name && next.get(home)?.node.querySelector(`[data-focus="${name}"]`);
      (again || container.closest("section")?.querySelector("h2"))?.focus({ preventScroll: true });
    }
  };
}

/** Return `request()`, which runs `work` soon; runs do not overlap, and a slow one is not repeated at once. */
export function refresher(work, signal, { wait_ms = 400 } = {}) {
  let timer = null;
  let running = false;
  let again = false;
  let took = 0;
  const run = async () => {
    timer = null;
    if (signal.aborted) return;
    running = true;
    const began = performance.now();
    try {
      await work();
    } finally {
      took = performance.now() - began;
      running = false;
      if (again) {
        again = false;
        request();
      }
    }
  };
  const request = () => {
    if (running) again = true;
    else timer ??= setTimeout(run, Math.max(wait_ms, took * 4));
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  return { request, now: run };
}
