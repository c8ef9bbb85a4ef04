export const title = "Memory";

export async function show(main) {
  main.append(document.createElement("h1"));
}
