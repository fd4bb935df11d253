/** What the command ends with. Scripts rely on the numbers; help and docs/reference/cli.md print this table. */

export const EXITS = {
  done: { code: 0, meaning: 'done' },
  failed: { code: 1, meaning: 'the tool answered with an error, or a check found a fault' },
  usage: { code: 2, meaning: 'the command line is wrong; nothing was called' },
  pending: {
    code: 3,
    meaning: 'the call is pending under the printed id: the server asks something, or works on a task',
  },
  answers: { code: 4, meaning: 'an answer is missing, was not used, or does not fit its question' },
  server: { code: 5, meaning: 'the server answered with a protocol error, or with something invalid' },
  unreachable: { code: 6, meaning: 'the server cannot be reached, or took too long' },
  refused: {
    code: 7,
    meaning: 'this side refused: a limit, a policy, an unsafe URL, a kind it cannot answer',
  },
  stored: {
    code: 8,
    meaning: 'there is no such pending call, task or store, or it is in use, or it cannot be read',
  },
  fault: { code: 70, meaning: 'a fault of this program' },
  interrupted: { code: 130, meaning: 'interrupted by Ctrl-C; at a question it means cancel' },
} as const

export type Exit = keyof typeof EXITS
