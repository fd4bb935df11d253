import { findNode } from '../node-binaries.ts'

const major = Number(process.versions.node.split('.')[0])

/** A Node that can run the SDK of Restate. */
export const restateNode: string | undefined = major >= 22 ? process.execPath : findNode(22)
