// The confidence of a proposal: its terms as a bar, with the bands, and as a table.

import { h, svg } from "./dom.js";
import { badge, table } from "./format.js";

const WIDTH = 600;
const BAR = 26;
const BANDS = [[0.6, "medium"], [0.8, "high"]];
const KINDS = { high: "good", medium: "warn", low: "bad" };
const HITS = 5;

/** Return the terms of a score: `{label, weight, share, value}`; `share` of `weight` is reached. */
export function termsOf({ rag_similarity, rag_hits, provider_exists, similar_dag }) {
  const provider = provider_exists === true ? "exists" : provider_exists === false ? "does not exist" : `${provider_exists}, counts as yes`;
  return [
    { label: "similarity of the best source", weight: 0.4, share: rag_similarity, value: rag_similarity.toFixed(2) },
    { label: "independent sources", weight: 0.3, share: Math.min(rag_hits, HITS) / HITS, value: `${rag_hits} of ${HITS}` },
    { label: "provider of the system", weight: 0.2, share: provider_exists === false ? 0 : 1, value: provider },
    { label: "a similar task succeeded", weight: 0.1, share: similar_dag ? 1 : 0, value: similar_dag ? "yes" : "no" },
  ];
}

/** Return a confidence as a picture and a table. */
export function confidencePicture({ score, band, terms }) {
  const head = h("p", null, badge(`${score.toFixed(2)} ${band}`, KINDS[band] ?? "quiet"), " high from 0.80: proceed; medium from 0.60: proceed with caveats; low: stop and ask");
  if (!terms) return head;
  const parts = termsOf(terms);
  let x = 0;
  const segments = parts.map(({ weight, share }, index) => {
    const group = [
      svg("rect", { x: x * WIDTH, y: 18, width: weight * WIDTH, height: BAR, class: "possible" }),
      svg("rect", { x: x * WIDTH, y: 18, width: weight * share * WIDTH, height: BAR, class: `term term-${index + 1}` }),
      svg("text", { x: (x + weight / 2) * WIDTH, y: 18 + BAR + 16, class: "term-name" }, `${(weight * share).toFixed(2)} of ${weight.toFixed(1)}`),
    ];
    x += weight;
    return group;
  });
  const total = [
    svg("rect", { x: 0, y: 74, width: WIDTH, height: 12, class: "possible" }),
    svg("rect", { x: 0, y: 74, width: score * WIDTH, height: 12, class: `total ${band}` }),
    BANDS.map(([at, name]) => [svg("line", { x1: at * WIDTH, y1: 70, x2: at * WIDTH, y2: 90, class: "threshold" }), svg("text", { x: at * WIDTH, y: 102, class: "term-name" }, `${name} ${at}`)]),
  ];
  const described = parts.map(({ label, weight, share, value }) => `${label} ${value}, ${(weight * share).toFixed(2)} of ${weight}`).join("; ");
  return h(
    "div",
    { class: "confidence" },
    head,
    svg("svg", { viewBox: `0 0 ${WIDTH} 108`, role: "img", "aria-label": `Confidence ${score.toFixed(2)}, ${band}: ${described}` }, svg("text", { x: 0, y: 12, class: "term-name start" }, "the four terms and their weights"), segments, total),
    table(
      [
        { label: "Term", cell: ({ label }, index) => label },
        { label: "Value", cell: ({ value }) => value },
        { label: "Adds", numeric: true, cell: ({ weight, share }) => (weight * share).toFixed(2) },
        { label: "At most", numeric: true, cell: ({ weight }) => weight.toFixed(1) },
      ],
      parts,
      { caption: "Terms of the confidence" },
    ),
  );
}
