import { createSqliteDatabase } from '../../../test/support/store/sqlite-database.ts'
import { describeStoreContract } from '../../../test/support/store/store-contract.ts'

describeStoreContract({ name: 'SQLite', limitSlack: 0, processes: true, create: createSqliteDatabase }, 30)
