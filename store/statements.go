package store

// New returns the Store of a pipeline. It does not use the database: [Store.Migrate]
// creates the tables, [Store.Check] checks them.
func New(db DB, g Graph) *Store {
	return &Store{db: db, graph: g, sql: newStatements(g)}
}

func newStatements(g Graph) *statements {
	all := func(text string) string { return g.SQL(text, nil) }
	return &statements{
		submitOne: all(submitOneSQL), submit: all(submitSQL), submitted: all(submittedSQL),
		events: all(eventsSQL),
		get:    all(getSQL), findByIDSuffix: all(findByIDSuffixSQL), history: all(historySQL),
		result: all(resultSQL), countRefused: all(countRefusedSQL), workers: all(workersSQL), stoppedWorkers: all(stoppedWorkersSQL),
		findWorkers: all(findWorkersSQL), workersOf: all(workersOfSQL),
		retry: all(retrySQL), retryFresh: g.SQL(retrySQL, g.HasParts()), cancel: all(cancelSQL), override: all(overrideSQL),
		matching: all(matchingSQL), countMatching: all(countMatchingSQL),
		retryMatching: all(retryMatchingSQL), retryDead: all(retryDeadSQL),
		parts: withParts(g, partsSQL), partResults: withParts(g, partResultsSQL),
		pages: newPages(g.templateData()),
	}
}
