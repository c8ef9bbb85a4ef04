export const title = "Now";

export async function show(main) {
  main.append(document.createElement("h1"));
}
