// A login link carries its token in the fragment, which no server and no log sees. A page whose login has ended names itself there.
function logIn() {
  const fragment = location.hash.slice(1);
  const form = document.getElementById("token-form");
  if (!fragment) return;
  history.replaceState(null, "", location.pathname);
  if (fragment.startsWith("back=")) {
    comeBack(decodeURIComponent(fragment.slice(5)));
  } else if (form) {
    form.elements.token.value = fragment;
    form.submit();
  }
}

function comeBack(page) {
  // Anyone can make a link to this page.
  if (!page.startsWith(document.querySelector(".brand").pathname)) return;
  for (const field of document.getElementsByName("back")) field.value = page;
  const link = document.getElementById("back");
  link.href = page;
  link.addEventListener("click", async (event) => {
    event.preventDefault();
    const response = await fetch(page, { redirect: "manual" });
    if (response.ok) location.assign(page);
    else link.nextElementSibling.hidden = false;
  });
  document.getElementById("ended").hidden = false;
}

addEventListener("hashchange", logIn);
logIn();
