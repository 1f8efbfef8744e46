// Shows what belongs to the chosen fleet and period (service.py): each row names its places, "FLEET:PERIOD" or "FLEET:".
const chosen = document.querySelector("form.filter");
function show() {
  const any = `${chosen.fleet.value}:`, one = `${any}${chosen.period.value}`;
  for (const each of document.querySelectorAll("[data-in]")) {
    const places = each.dataset.in.split(" ");
    each.hidden = !places.includes(any) && !places.includes(one);
  }
}
if (chosen) {
  chosen.addEventListener("change", show);
  chosen.hidden = false;
  show(); // a page that is loaded again has the choice of before
}
