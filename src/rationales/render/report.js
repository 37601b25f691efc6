// The rows that a report lists: a link shows its row in the viewer, on the same page.
{
  const place = document.getElementById("row");
  const show = () => {
    document.getElementById("row-heading").focus({ preventScroll: true });
    place.scrollIntoView();
  };
  if (place) {
    Rationales.view(document.getElementById("viewer"), JSON.parse(document.getElementById("data").textContent));
    const list = place.querySelector(".items");
    const top = (node) => node.getBoundingClientRect().top;
    addEventListener("hashchange", () => { // after the viewer, which follows the address
      list.scrollTop += top(list.querySelector("[aria-current=true]")) - top(list);
    });
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[href^='#item=']");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault(); // in a frame of a notebook, the link would lead to the notebook
      show();
      location.hash = link.hash;
    });
    if (/\b(item|target)=/.test(location.hash)) show();
  }
}
