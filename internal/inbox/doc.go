// Package inbox watches directories into which people and programs drop files,
// and hands each file over once it has stopped growing.
//
// Call [Run]. What it promises:
//
//   - A file is handed over when its size and modification time have not
//     changed for a while: Options.Settle, or, where the modification time is
//     older than that already, as with a file that was written elsewhere and
//     then renamed into place, from one look to the next.
//   - What could not be submitted is handed over again at the next look, and
//     after a restart so is all that is there. [File.RequestID] tells a file
//     that was seen before: it is made of path, size and modification time, so
//     a file that is replaced by another of the same name is a new one, and so
//     is one that is renamed or touched.
//   - Files are only looked at. They are never opened, moved or deleted.
//
// It looks into subdirectories, but does not follow symbolic links to them.
// Hidden files and directories are passed over, and so are names which programs
// give to what is not finished (.part, .tmp, .crdownload …, a leading or a
// trailing ~) and files with nothing in them.
//
// It looks again and again rather than being told by the system, because the
// system does not tell what happens on a network's file system.
package inbox
