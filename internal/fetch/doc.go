// Package fetch brings a source, a local file or an http(s) address, into a
// directory of the caller's.
//
// Call [Fetch]. What it promises:
//
//   - The destination either holds the whole source, synced to disk, or does
//     not exist. Work in progress has another name.
//   - The source is only read. It is never moved, changed or deleted.
//   - A local source must be a regular file with something in it. Pipes,
//     sockets and devices are refused without being opened, so none can block
//     or be disturbed. A file that changes while it is read is an error.
//   - Downloads are made by this package alone, never by ffmpeg, and every
//     connection is checked when it is dialled: an address that is not public
//     is refused unless Options.Allow names it, whatever a redirect or a name
//     server says. So are the host's own addresses; where they cannot be
//     listed, nothing is downloaded. Proxies from the environment are not used, because behind
//     a proxy the address that matters is dialled by somebody else.
//   - No error carries a URL's user, password, query or fragment.
//   - A download that breaks off is continued by the next call with the same
//     Options.Partial, if the server lets the remains be told from those of
//     another file.
//
// # Which sources are understood
//
// A source that begins with "/" is a path, whatever else is in it. A source
// that begins with a scheme and "://" is a URL: http and https are
// downloaded; file is a path in its percent-encoded form, which is also the
// way to name a file whose name is not valid UTF-8; every other scheme is
// refused. Anything else would be a relative path, and is refused too, since
// it means one file to whoever submitted it and another one here.
//
// # How a local file is brought over
//
// By reflink where the file system has it: instant, no disk space, and a
// later change to either file does not show in the other. Otherwise by a full
// copy. Not by a hard link: the two names would share one file, so a program
// that rewrites its source in place would change, under a running transcode,
// what was fetched and hashed long before. Options.Link allows the link to
// callers who know that their sources are never written to again.
//
// # Errors
//
// Fetch returns the context's error when its context ended, and an [*Error]
// otherwise, which says whether another attempt can help.
package fetch
