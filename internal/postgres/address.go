package postgres

import (
	"net/url"
	"strings"
)

// Address is the URL of a database on a Unix socket, for [Superuser], in a form
// that both pgx and psql read.
func Address(socketDir, port, database string) string {
	query := url.Values{"host": {socketDir}, "port": {port}, "sslmode": {"disable"}}.Encode()
	// A plus sign is a space in a form, but not in the URL of a database.
	return "postgres://" + Superuser + "@/" + url.PathEscape(database) + "?" + strings.ReplaceAll(query, "+", "%20")
}
