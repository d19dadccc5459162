// Package fetch copies a source, which is a local file or an http(s) URL, into a
// directory of the caller.
//
// Call [Fetch]. Guarantees:
//
//   - The destination contains the whole source, synced to disk, or does not exist.
//     Unfinished files have other names.
//   - It only reads the source. It never moves, changes or deletes it.
//   - A local source must be a regular file that is not empty. It refuses pipes,
//     sockets and devices without opening them, so none of them can block or be
//     disturbed. A file that changes during the copy is an error.
//   - Only this package makes downloads, never ffmpeg. A policy of package ssrf checks every
//     connection: public addresses and Options.Allow only, also after a redirect.
//   - No error contains the user, password, query or fragment of a URL.
//   - If the server supports it, the next call with the same Options.Partial resumes a
//     download that broke off.
//
// # Sources
//
// A source that begins with "/" is a path. A source that begins with a scheme and
// "://" is a URL. Only three schemes are supported: http and https are downloaded; file
// is a percent-encoded path, which can also name a file whose name is not valid UTF-8.
// Everything else would be a relative path. Fetch refuses it, because it may name
// different files for the user who submits it and for this process.
//
// # Local files
//
// Fetch uses a reflink if the file system supports it: it takes no time and no space,
// and the two files stay independent. Otherwise it copies. Blocks of zeros become holes,
// so the copy of a sparse file is sparse. By default it does not make hard links,
// because the source and its link share one content: a program that overwrites the
// source would change a file that was already hashed and is being transcoded.
// Options.Link allows hard links if no source is ever overwritten.
//
// # Errors
//
// If its context ends, Fetch returns the context's error. Otherwise it returns an
// [*Error], which says whether another attempt can help.
package fetch
