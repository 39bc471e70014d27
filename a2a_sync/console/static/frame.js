// Before anything is shown: a page in a frame of the page "Side by side" has no side bar.
if (window.top !== window) document.documentElement.className = "framed";
