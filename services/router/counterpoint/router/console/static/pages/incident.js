export const title = "Incident";

export async function show(main) {
  main.append(document.createElement("h1"));
}
