// The tables under the map: relevance, loadings, starts, views, settings, calibration.
const words = (name) => String(name).replaceAll("_", " ");
const facts = (id, entries) => table(id, [], Object.entries(entries).map(([key, value]) => [words(key), text(value)]));

function tables() {
  const names = Object.keys(about.views);
  relevance(names);
  loadings();
  for (const [name, noise] of Object.entries(about.noise)) about.views[name].noise = noise;
  const fields = [...new Set(names.flatMap((name) => Object.keys(about.views[name])))].filter((field) => field !== "relevance");
  table("views", ["view", ...fields.map(words)], names.map((name) => [name, ...fields.map((field) => text(own(about.views[name], field)))]));
  const starts = Array.isArray(about.starts) ? about.starts : [];
  const best = Math.max(...starts.map((start) => own(start, "elbo")));
  const parts = [...new Set(starts.flatMap((start) => Object.keys(start)))];
  table("starts", [...parts.map(words), "kept"], starts.map((start) => [...parts.map((part) => text(own(start, part))), start.elbo === best ? "yes" : ""]));
  fitText();
  calibration(about.calibration);
  const {views: _, starts: __, parameters, versions, relevance: ___, collapse, partial, calibration: ____, loadings: _____, chains: ______, covariates, noise, ...rest} = about;
  const {advice, ...found} = collapse;
  facts("facts", {...rest, ...found});
  // as they are typed: a seed has no commas
  const typed = ([key, value]) => [key, typeof value === "number" ? String(value) : value];
  facts("settings", Object.fromEntries(Object.entries(parameters).map(typed)));
  facts("versions", versions);
}
function relevance(names) {
  const most = Math.max(...about.relevance.flat(), 1e-9);
  const lines = names.map((name, v) => [name, ...about.relevance[v].map((share) => `${(100 * share).toFixed(1)} %`)]);
  table("relevance", ["view", ...about.relevance[0].map((_, d) => `dim ${d}`)], lines);
  $("relevance").querySelectorAll("td").forEach((cell, k) => {
    cell.style.setProperty("--share", (0.55 * about.relevance.flat()[k] / most).toFixed(3));
  });
}
function loadings() {
  if (!about.loadings.length) return;
  $("loadings-section").hidden = false;
  const named = ([column, share], k) => [k ? ", " : "", apart(column), `: ${(100 * share).toFixed(0)} %`];
  const sentence = (top) => element("span", {}, ...(top.length ? top.flatMap(named) : ["none"]));
  table("loadings", ["dimension", "columns"], about.loadings.map((top, d) => [`dim ${d}`, sentence(top)]));
}
function fitText() {
  const ended = about.interrupted ? "was interrupted" : about.converged ? "converged" : "stopped before it converged";
  const bound = `Evidence lower bound: ${number(about.elbo)} ± ${number(about.elbo_se)} nats.`;
  const trained = about.chains || `Training ${ended} after ${about.n_iter} steps.`;
  $("fit-text").replaceChildren(...quotedApart(`${trained} ${bound} ${about.partial} ${about.collapse.advice}`));
  $("bound").setAttribute("aria-label", `Bound of every training step: it ends at ${number(about.elbo)} nats after ${figures.bound.lines[0].x.at(-1) ?? 0} steps.`);
}
function calibration(found) {
  if (!found) return;
  $("calibration-section").hidden = false;
  $("calibration-text").textContent = `Hidden and predicted, in rows that were not in training: ${found.hidden}. Intervals are calibrated where their empirical coverage is their nominal one.`;
  const said = [...found.problems, ...found.too_few];
  const sentences = said.length ? said : ["Calibrated, as far as these entries can tell."];
  $("calibration-problems").replaceChildren(...sentences.map((sentence) => element("li", {}, ...quotedApart(sentence))));
  const entries = Object.entries(found.views);
  const levels = Object.keys(entries[0][1].coverage);
  const share = (view, level) => `${(100 * view.coverage[level]).toFixed(1)} ± ${(100 * view.coverage_se[level]).toFixed(1)} %`;
  const heads = levels.map((level) => `in ${Math.round(100 * level)} % intervals`);
  table("calibration-table", ["view", "entries", ...heads, "log-likelihood (nats per entry)"], entries.map(([name, view]) =>
    [name, number(view.n_entries), ...levels.map((level) => share(view, level)), `${number(view.log_likelihood)} ± ${number(view.log_likelihood_se)}`]));
}
