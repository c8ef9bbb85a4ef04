export const title = "Costs";

export async function show(main) {
  main.append(document.createElement("h1"));
}
