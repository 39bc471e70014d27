// Commands that repeat a request: with curl, and in Python. They never contain a credential: the server gives the option of curl and
// the line of Python that read each one from the environment.

// As JSON in ASCII: what a terminal takes for a key, such as DEL, would edit the line into which the command is pasted.
const ascii = (value) => JSON.stringify(value).replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
const quote = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

function asCurl({ method, url, headers, json }, credentials) {
  const lines = [`curl -sS -X ${method} ${quote(url)}`];
  for (const [name, value] of Object.entries(headers)) {
    if (value !== "***") lines.push(`  -H ${quote(`${name}: ${value}`)}`);
  }
  lines.push(...credentials.map(([curl]) => `  ${curl}`));
  if (json) lines.push(`  -d ${quote(ascii(json))}`);
  return lines.join(" \\\n");
}

// As the client, it follows no redirect: an API key would go with it to another origin.
function asPython(request, credentials) {
  const headers = Object.fromEntries(Object.entries(request.headers).filter(([, value]) => value !== "***"));
  return [
    "import json",
    ...(credentials.length ? ["import os"] : []),
    "",
    "import requests",
    "",
    `request = json.loads(${JSON.stringify(ascii({ ...request, headers, allow_redirects: false }))})`,
    ...credentials.map(([, python]) => python),
    "print(requests.request(**request).text)",
  ].join("\n");
}

// The request that made an entry of a log, or that reads it: a message of a user is sent again, for all others the task is read.
export function requestOf(entry, { read, send }) {
  if (entry?.message?.role !== "ROLE_USER" || !send) return read;
  const { taskId, contextId, ...message } = entry.message;
  const request = structuredClone(send);
  (request.json.params ?? request.json).message = message;
  return request;
}

export function copyButtons(make, request, credentials) {
  const row = make("p", "row");
  for (const [label, text] of [["Copy as curl", asCurl], ["Copy as Python", asPython]]) {
    const button = make("button", "quiet", label);
    button.type = "button";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text(request, credentials));
      button.textContent = "Copied";
    });
    row.append(button);
  }
  return row;
}
