// What was dropped, folders with all that is in them.

import { foldersOf, type Batch, type Source } from './upload.ts';

const mostFiles = 10_000;

// dropped must be called while the event is handled; what it returns takes its
// time.
export function dropped(data: DataTransfer): Promise<Batch> {
  const items = [...data.items].filter((item) => item.kind === 'file').map((item) => ({ entry: item.webkitGetAsEntry(), file: item.getAsFile() }));
  return collect(items);
}

export const hasFiles = (data: DataTransfer | null): boolean => data?.types.includes('Files') ?? false;

async function collect(items: { entry: FileSystemEntry | null; file: File | null }[]): Promise<Batch> {
  const files: Source[] = [];
  const folders: string[] = [];
  const walk = async (entry: FileSystemEntry, path: string): Promise<void> => {
    if (files.length + folders.length >= mostFiles) throw new Error(`More than ${mostFiles.toLocaleString()} files are too many at once. Pack them into one.`);
    if (isFile(entry)) {
      files.push({ path, file: await new Promise<File>((resolve, reject) => entry.file(resolve, reject)) });
    } else if (isFolder(entry)) {
      folders.push(path);
      const reader = entry.createReader();
      // Each call returns some, the last one none.
      for (let some = await read(reader); some.length > 0; some = await read(reader)) {
        for (const child of some) await walk(child, `${path}/${child.name}`);
      }
    }
  };
  for (const { entry, file } of items) {
    if (entry !== null) await walk(entry, entry.name);
    else if (file !== null) files.push({ path: file.name, file }); // made by a page
  }
  return foldersOf(files, folders);
}

const isFile = (entry: FileSystemEntry): entry is FileSystemFileEntry => entry.isFile;
const isFolder = (entry: FileSystemEntry): entry is FileSystemDirectoryEntry => entry.isDirectory;

const read = (reader: FileSystemDirectoryReader): Promise<FileSystemEntry[]> => new Promise((resolve, reject) => reader.readEntries(resolve, reject));
