// Package inbox watches directories into which people and programs drop files,
// and hands each file over once it has stopped growing.
//
// Call [Run]. What it promises:
//
//   - A file is handed over when its size and modification time have not
//     changed for a while: Options.Settle, or, where the modification time is
//     older than that already, as with a file that was written elsewhere and
//     then renamed into place, from one look to the next.
//   - Linux: a file that a process of this host has open for writing is not
//     handed over until it is closed, as long as that takes. Only processes
//     that this one may look into are seen: root's eyes see all, any other
//     account's only its own, and nobody sees those of another host that
//     writes over the network.
//   - What could not be submitted is handed over again at the next look, and
//     after a restart so is all that is there. [File.RequestID] tells a file
//     that was seen before: it is made of path, size and modification time, so
//     a file that is replaced by another of the same name is a new one, and so
//     is one that is renamed or touched.
//   - Files are only looked at. They are never opened, moved or deleted.
//
// # Uploading safely
//
// Whether a file is complete cannot be seen from outside: an upload that pauses
// for longer than Options.Settle looks like one that is over. The sure way is
// to upload under a name that ends in .part, into the same directory, and to
// rename when all is there. Such a file is never handed over too early, and
// without waiting.
//
// # What is passed over
//
// It looks into subdirectories, but does not follow symbolic links to them. A
// link to a file is followed only if the file, after all links, is in the same
// watched directory: whoever may put something there could otherwise have any
// file submitted that this process can read. That is looked at when the file is
// handed over, and nobody knows what the name leads to when it is read: where
// those who may write there are not trusted, whoever reads must not be able to
// read more than they are.
//
// Hidden files and directories are passed over, and so are names which programs
// give to what is not finished (.part, .tmp, .crdownload …, a leading or a
// trailing ~) and files with nothing in them.
//
// Files whose names say that they are no videos are passed over, too: texts,
// subtitles, pictures, archives, checksums and playlists. Anything else is handed
// over, whatever it is called.
//
// It looks again and again rather than being told by the system, because the
// system does not tell what happens on a network's file system.
package inbox
