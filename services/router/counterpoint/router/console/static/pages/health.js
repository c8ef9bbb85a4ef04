export const title = "Health";

export async function show(main) {
  main.append(document.createElement("h1"));
}
