export const title = "Lineage";

export async function show(main) {
  main.append(document.createElement("h1"));
}
