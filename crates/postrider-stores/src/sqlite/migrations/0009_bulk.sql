-- Many dead letters at once, in the order of their places: a rowid table keeps its place at the end of every index.
create index {dead_place} on {dead} (queue);
