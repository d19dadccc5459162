package stages

// NewBackend is the Backend of a Runner with a Pool, for tests that run without a
// listener or wrap it.
var NewBackend = newDatabase

// Database is the Backend of a Runner with a Pool.
type Database interface {
	Backend
	housekeeper
}
