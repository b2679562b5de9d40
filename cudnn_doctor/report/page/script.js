"use strict";
for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    let copied = false;
    try {
      await navigator.clipboard.writeText(code.textContent);
      copied = true;
    } catch {
      const selection = getSelection();
      selection.selectAllChildren(code);
      copied = document.execCommand("copy");
      selection.removeAllRanges();
    }
    button.textContent = copied ? "Copied" : "Select it";
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  });
}
const closed = [];
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details:not([open])")) {
    details.open = true;
    closed.push(details);
  }
});
addEventListener("afterprint", () => {
  for (const details of closed.splice(0)) details.open = false;
});
