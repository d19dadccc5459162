// Package dbconn connects a command to its database.
//
// [Options] say which database that is: an address from a flag or the environment, or
// a private PostgreSQL server in the data directory, which Options.Connect starts and
// Database.Close stops. Connect does not wait for the database; Database.EnsureTables creates or
// checks its tables.
//
// A [Database] has one pool for the work and, after OpenReadPool, two smaller ones for
// the dashboard and the API, so that many or slow requests cannot delay a heartbeat.
// Sessions are configured for direct connections and for poolers such as PgBouncer.
//
// [Explain] turns errors of the database into errors for the operator. The package
// neither creates tables in a database that is not private nor retries queries.
package dbconn
