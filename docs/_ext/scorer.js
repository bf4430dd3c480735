// The order of what a search finds: pages on tasks first, then the names of the API, and pages for maintainers last.
const words = (new URLSearchParams(window.location.search).get("q") || "").trim();
const searched = words.toLowerCase();
const parts = {learn: 4, use: 5, operate: 5, build: 3, index: -4, "how-it-works": -5};

// Return what a page is worth for the headings that it has, if one has the words as they stand.
const worth = page => {
    const number = Search._index.docnames.indexOf(page);
    const title = Search._index.titles[number].toLowerCase();
    const headings = Object.entries(Search._index.alltitles).filter(([, places]) => places.some(([file]) => file === number));
    const inHeading = headings.some(([heading]) => heading.toLowerCase().includes(searched));
    return (title.startsWith(searched) ? 8 : 0) + (title.includes(searched) ? 4 : 0) + (inHeading ? 8 : 0);
};

// Names with capitals or underscores are looked for as they are in programs.
const isName = title => /[A-Z_]/.test(words) && title.split(".").pop() === words;

var Scorer = {
    score: ([page, title, , description, score]) =>
        description === null ? score + (parts[page.split("/")[0]] || 0) + worth(page) : score + (isName(title) ? 20 : 0),
    objNameMatch: 11,
    objPartialMatch: 1,
    objPrio: {0: 0, 1: 0, 2: -5},
    objPrioDefault: 0,
    title: 15,
    partialTitle: 7,
    term: 5,
    partialTerm: 2,
};
