// Package inbox watches directories and submits each file that is complete.
//
// Call [Run]. Guarantees:
//
//   - It submits a file when the file's size and modification time have not changed
//     for Options.UnchangedFor. If the modification time is already older than that, as
//     after a rename into the directory, two equal scans are enough.
//   - On Linux it does not submit a file while a process of this host has it open for
//     writing. It sees the processes of its own account only; root sees all. It never
//     sees the processes of another host that writes over the network.
//   - It submits a file again after Submit failed, and after a restart.
//     [File.RequestID] identifies a file by path, size and modification time, so a file
//     that is replaced, renamed or touched is a new one.
//   - An error of one file, as [FileErrors], keeps no other file back.
//   - It never opens, moves or deletes a file.
//
// # Safe uploads
//
// No program can see from outside whether a file is complete: an upload that pauses for
// longer than Options.UnchangedFor looks complete. To be safe, upload into the same
// directory under a name that ends in .part, and rename the file at the end. It is then
// submitted without a wait, and never too early.
//
// # Ignored files
//
// The package scans subdirectories, but does not follow symbolic links to directories.
// It follows a link to a file only if the final target is in the same watched
// directory. Otherwise a user who can write there could submit every file that this
// process can read. The check happens before Submit; the link can change afterwards. If
// the users of the directory are not trusted, the process that reads the file must not
// have more rights than they have.
//
// The package ignores hidden files and directories, empty files, names that programs
// give to unfinished files (.part, .tmp, .crdownload, a leading or trailing ~, …), and
// names of other file types: text, subtitles, pictures, archives, checksums and
// playlists. It submits everything else, whatever the name.
//
// The package polls, because file system notifications do not work on network file
// systems.
package inbox
