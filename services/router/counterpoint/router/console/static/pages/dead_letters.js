export const title = "Dead letters";

export async function show(main) {
  main.append(document.createElement("h1"));
}
