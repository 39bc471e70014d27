// The page of an agent: a message begins a task, whose page then follows it.

import { Composer } from "./composer.js";

const form = document.getElementById("composer");
const composer = new Composer(form, (task) => {
  location.assign(`${form.dataset.api.replace(/api\/$/, "t/")}${encodeURIComponent(task.id)}`);
});
for (const button of document.querySelectorAll("[data-example]")) {
  button.addEventListener("click", () => composer.fill(button.dataset.example));
}
